// ShardStore: the numbers of one shard: values, optimizer state and gradients; carries out its
// core's actions. DenseStore implements it for dense shards, SparseStore (server/store/sparse) for
// buckets of sparse tables.
//
// Thread safety: thread-compatible.
#ifndef CAPSTAN_SERVER_STORE_SHARD_STORE_H_
#define CAPSTAN_SERVER_STORE_SHARD_STORE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/cord.h"
#include "absl/strings/string_view.h"
#include "common/wire/number_format.h"
#include "proto/parameter_server.pb.h"
#include "server/core/messages/messages.h"
#include "server/store/gradient.h"
#include "server/store/row_store.h"

namespace capstan::server {

// Corrects gradients that come late (server/optimizer/late_gradient.h). DenseStore implements it.
class LateGradientStore {
 public:
  virtual ~LateGradientStore() = default;

  // Each carries out the action of its argument. Errors: as ShardStore::Apply.
  virtual absl::Status Correct(const CorrectGradient& action, const Gradient& payload) = 0;
  virtual void KeepCurrent(const KeepValues& action) = 0;
  virtual void Forget(const ForgetValues& action) = 0;
};

class ShardStore {
 public:
  // `rows`: the part that only buckets of rows have; `late_gradients`: the part that only dense
  // shards have. Null: the shard has no such part. Usually the object itself.
  ShardStore(RowStore* rows, LateGradientStore* late_gradients)
      : row_store_(rows), late_gradients_(late_gradients) {}
  ShardStore(const ShardStore&) = delete;
  ShardStore& operator=(const ShardStore&) = delete;
  virtual ~ShardStore() = default;

  // These three read what never changes: they may be called while another thread updates the shard.
  // Returns a view of the payload of a push or a record, which must live as long as the result.
  // `listed`: null, or the keys of a push that names a list: then the payload has only their rows.
  // Errors: kInvalidArgument  it does not fit the shard; says what was expected.
  virtual absl::StatusOr<Gradient> Parse(const absl::Cord& payload, NumberFormat format,
                                         const RowKeys& listed = nullptr) const = 0;
  // The keys that a pull names (fixed64 each); null for a dense shard. Errors: as Parse.
  virtual absl::StatusOr<RowKeys> ParseKeys(absl::string_view bytes) const = 0;
  // Numbers in the answer to a pull of these keys.
  virtual int64_t AnswerElements(const RowKeys& keys) const = 0;

  // Each carries out the action of its argument; `payload` is the push being handled.
  // Errors: kResourceExhausted  no memory for a gradient or rows, or too many rows.
  //         kUnavailable        the disk of the rows has failed.
  //         Those of the device. The push is lost, the shard unusable.
  virtual absl::Status Keep(const KeepGradient& action, const Gradient& payload) = 0;
  virtual absl::Status Add(const AddGradient& action, const Gradient& payload) = 0;
  virtual void Drop(const DropGradient& action) = 0;
  virtual void Release(const ReleasePrevious& action) = 0;
  // May leave the update running on a device: then nothing but Finish is called next.
  virtual absl::Status Apply(const ApplyGradient& action, const Gradient& payload) = 0;
  // Whether an update is running on a device; Finish waits for its end.
  virtual bool updating() const { return false; }
  virtual absl::Status Finish() { return absl::OkStatus(); }

  // The gradient that an action names. Valid until the next action.
  virtual Gradient ReadGradient(GradientId id, const Gradient& payload) const = 0;

  // The values in the answer to a pull: all elements of a dense shard, or the rows of `keys`. The
  // reader may keep them as long as it likes. Errors: as Apply.
  virtual absl::StatusOr<absl::Cord> Lend(ReadFrom from, const RowKeys& keys,
                                          NumberFormat format) const = 0;

  // Writes a copy of all numbers; `previous`: also those of ReadFrom::kPrevious. Errors: as Apply.
  virtual absl::Status Save(bool previous, v1::ShardSnapshot* snapshot) const = 0;
  // Takes over what another store of this shard has saved; gradients that are kept are dropped.
  // Errors: kDataLoss           it does not fit the shard, or cannot be.
  //         kResourceExhausted  no memory; the store is unusable.
  virtual absl::Status Restore(const v1::ShardSnapshot& snapshot) = 0;

  RowStore* row_store() { return row_store_; }  // Null: a dense shard.
  const RowStore* row_store() const { return row_store_; }
  LateGradientStore* late_gradients() { return late_gradients_; }  // Null: rows.

  virtual int64_t elements() const = 0;  // Values: those of a dense shard, or of rows that exist.
  virtual int64_t lasting_bytes() const = 0;  // Values, optimizer state and what belongs to it.
  virtual int64_t bytes() const = 0;          // Everything in memory now.

 private:
  RowStore* const row_store_;
  LateGradientStore* const late_gradients_;
};

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_STORE_SHARD_STORE_H_
