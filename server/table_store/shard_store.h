// ShardStore: the numbers of one shard: values, optimizer state and gradients; carries out its
// core's actions. Dense shards are DenseStore's, buckets of sparse tables SparseStore's
// (server/sparse_table).
//
// Thread safety: thread-compatible.
#ifndef CAPSTAN_SERVER_TABLE_STORE_SHARD_STORE_H_
#define CAPSTAN_SERVER_TABLE_STORE_SHARD_STORE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/cord.h"
#include "absl/strings/string_view.h"
#include "common/wire/number_format.h"
#include "proto/parameter_server.pb.h"
#include "server/core/messages.h"
#include "server/sparse_table/row_disk.h"
#include "server/sparse_table/row_history.h"
#include "server/table_store/gradient.h"

namespace capstan::server {

// Which rows of one bucket are asked for.
struct RowScan {
  uint64_t place = 0;            // The lowest (common/sparse/key_hash.h).
  int64_t bytes_max = 0;         // Limit of keys and rows; one row comes all the same.
  std::optional<int64_t> since;  // Only those that an update after this version has written.
  bool unchanged_keys = false;   // With `since`: also the keys of the other rows.
};

// In ascending order of their places.
struct ScannedRows {
  std::string rows;              // Keys (fixed64), then a row of fp32 for each.
  std::string unchanged;         // Keys (fixed64).
  std::optional<uint64_t> next;  // The place to go on from; none: there are no more.
};

// Which pinned rows are read next.
struct PinnedRead {
  PinId pin{};
  std::optional<int64_t> since;  // Only those that an update after this version had written.
  uint64_t place = 0;            // The lowest.
  int64_t bytes_max = 0;  // Approximate size of a piece: some hundred rows come all the same.
  bool passes = false;    // Rows before the result's place are not read again.
};

// Rows by key, as they were when they were pinned.
struct RowsThen {
  std::string found;  // Bit i % 8 of byte i / 8: key i had a row.
  std::string rows;   // A row of fp32 for each of those.
};

class ShardStore {
 public:
  ShardStore() = default;
  ShardStore(const ShardStore&) = delete;
  ShardStore& operator=(const ShardStore&) = delete;
  virtual ~ShardStore() = default;

  // These three, and AnswerElements, read what never changes: they may be called while another
  // thread updates the shard.
  // A view of a push or a record, which must live as long as the result.
  // Errors: kInvalidArgument  it does not fit the shard; says what was expected.
  virtual absl::StatusOr<Gradient> Parse(const absl::Cord& payload, NumberFormat format) const = 0;
  // The gradient of a push for `keys`, which an earlier pull has named: only their rows.
  // Errors: likewise; kInvalidArgument  a dense shard.
  virtual absl::StatusOr<Gradient> ParseListed(const RowKeys& keys, const absl::Cord& rows,
                                               NumberFormat format) const = 0;
  // The keys that a pull names (fixed64 each); null for a dense shard. Errors: likewise.
  virtual absl::StatusOr<RowKeys> ParseKeys(absl::string_view bytes) const = 0;
  // OK: the rows that a push names, new ones included, have room in a snapshot of the shard.
  // Errors: kResourceExhausted  they have not.
  virtual absl::Status CheckRoom(const Gradient& /*gradient*/) const { return absl::OkStatus(); }
  // Numbers in the answer to a pull of these keys.
  virtual int64_t AnswerElements(const RowKeys& keys) const = 0;

  // Each carries out the action of its argument; `payload` is the push being handled.
  // Errors: kResourceExhausted  no memory for a gradient or rows; or a disk's, for rows that lie
  //         there. The push is lost, the shard unusable.
  virtual absl::Status Keep(const KeepGradient& action, const Gradient& payload) = 0;
  virtual absl::Status Add(const AddGradient& action, const Gradient& payload) = 0;
  virtual void Drop(const DropGradient& action) = 0;
  // These three only of dense shards: ShardFactory refuses corrections of rows.
  virtual absl::Status Correct(const CorrectGradient& action, const Gradient& payload) = 0;
  virtual void KeepCurrent(const KeepValues& action) = 0;
  virtual void Forget(const ForgetValues& action) = 0;
  virtual void Release(const ReleasePrevious& action) = 0;
  // May leave the update to go on, on a device: then nothing but Finish is called next.
  virtual absl::Status Apply(const ApplyGradient& action, const Gradient& payload) = 0;
  // Whether an update goes on; and waits for its end.
  virtual bool updating() const { return false; }
  virtual absl::Status Finish() { return absl::OkStatus(); }

  // The gradient that an action names. Valid until the next action.
  virtual Gradient ReadGradient(GradientId id, const Gradient& payload) const = 0;

  // What the answer to a pull carries: all elements of a dense shard, or the rows of `keys`; to be
  // kept as long as the reader likes. Errors: as Apply.
  virtual absl::StatusOr<absl::Cord> Lend(ReadFrom from, const RowKeys& keys,
                                          NumberFormat format) const = 0;

  // What Lend would have to read from disk for `keys`, to be read ahead of it without holding up
  // the shard; TakeIn takes in what has arrived, as far as nothing has changed it since. Null:
  // nothing. Errors: as Apply; then Lend will say so as well.
  virtual std::unique_ptr<RowFetch> BeginFetch(const RowKeys& keys) const = 0;
  virtual absl::Status TakeIn(const RowFetch& fetch) const = 0;

  // The rows that exist from a place on, as they are now: as many as there is room for, and not
  // more than can be had in some milliseconds; where they are far apart that may be none.
  // Errors: kInvalidArgument  a dense shard.
  virtual absl::StatusOr<ScannedRows> Scan(const RowScan& scan) const = 0;

  // Writes a copy of all numbers; `previous`: also those of ReadFrom::kPrevious. Errors: as Apply.
  virtual absl::Status Save(bool previous, v1::ShardSnapshot* snapshot) const = 0;
  // For a checkpoint: as Save, or where it can tell and most of it is the same, what has changed
  // after version `since` (snapshot->since, without a checkpoint's id). What left is known since
  // KeepRemovedSince(`since` or earlier). Where pins_rows() the snapshot is without its rows: they
  // are pinned, to be read in pieces while the shard goes on, until Unpin. Errors: as Apply.
  virtual absl::Status Capture(PinId pin, std::optional<int64_t> since, bool previous,
                               v1::ShardSnapshot* snapshot) = 0;
  virtual bool pins_rows() const { return false; }
  // Writes the next rows to `piece`: values, optimizer_state and stamps, as a snapshot has them.
  // The result is the place to go on from; none: there are no more. REQUIRES: pins_rows().
  // Errors: kAborted  they are pinned no more. Of the disk.
  virtual absl::StatusOr<std::optional<uint64_t>> ReadPinned(const PinnedRead& read,
                                                             v1::ShardSnapshot* piece) = 0;
  virtual void Unpin(PinId pin) = 0;  // One that is unknown is ignored.
  // For readers of this moment, until Unpin: rows that are kept for them stand on the account, and
  // the pin ends where that has no room. REQUIRES: pins_rows(); likewise of the next two.
  virtual void PinForReaders(PinId pin, std::shared_ptr<KeptRowsAccount> account) = 0;
  // Errors: as ReadPinned; kResourceExhausted  the account had no room.
  virtual absl::StatusOr<RowsThen> ReadRowsThen(PinId pin, const RowKeys& keys) const = 0;
  // As Scan, of the pinned rows; `since` and `passes` are ignored. Errors: likewise.
  virtual absl::StatusOr<ScannedRows> ScanThen(const PinnedRead& read) const = 0;
  // Whoever leaves after `version` of now or before is to be remembered, within bounds.
  virtual void KeepRemovedSince(int64_t version) = 0;
  // Takes over what another store of this shard has saved; gradients that are kept are dropped.
  // Errors: kDataLoss           it does not fit the shard, or cannot be.
  //         kResourceExhausted  no memory; the store is unusable.
  virtual absl::Status Restore(const v1::ShardSnapshot& snapshot) = 0;
  // The next rows of a snapshot whose rows come later; before anything else. Errors: likewise.
  virtual absl::Status RestoreMore(const v1::ShardSnapshot& piece) = 0;

  // None: it has no rows that come and go.
  virtual std::optional<v1::RowCounts> row_counts() const { return std::nullopt; }
  virtual int64_t rows_on_disk() const { return 0; }
  virtual int64_t elements()
      const = 0;  // Bytes of values: those of a dense shard, or of rows that exist.
  virtual int64_t lasting_bytes()
      const = 0;                      // Bytes of values, optimizer state and what belongs to it.
  virtual int64_t bytes() const = 0;  // Bytes of everything in memory now.
};

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_TABLE_STORE_SHARD_STORE_H_
