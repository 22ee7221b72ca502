// TableShard: one shard: its core and its numbers; carries the core's actions out.
//
// Replicas and logs replay records through it, so that its bytes are those of the shard that made
// them: values, optimizer state, the previous version of BSP, duplicate marks and clocks.
// Thread safety: thread-compatible.
#ifndef CAPSTAN_SERVER_STORE_TABLES_TABLE_SHARD_H_
#define CAPSTAN_SERVER_STORE_TABLES_TABLE_SHARD_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/types/ids.h"
#include "proto/parameter_server.pb.h"
#include "server/core/messages/messages.h"
#include "server/core/replication/held_shard.h"
#include "server/core/shard_core.h"
#include "server/store/memory_budget.h"
#include "server/store/shard_store.h"

namespace capstan::server {

// ReplySink: receives answers and records in the order in which the core made them. Arguments are
// valid during the call only; what a store lends may be kept.
class ReplySink {
 public:
  virtual ~ReplySink() = default;
  virtual void OnPush(const ShardKey& key, const ReplyPush& reply) = 0;
  // `store` has what the reply reads.
  // Errors: as of ShardStore::Lend.
  virtual absl::Status OnPull(const ShardKey& key, const ReplyPull& reply,
                              const ShardStore& store) = 0;
  // `gradient` is the record's; empty if it has none. The shard changes right after this call.
  virtual void OnRecord(const ShardKey& key, const MakeRecord& made, const Gradient& gradient) = 0;
};

class TableShard {
 public:
  TableShard(Range elements, ShardCore core, std::unique_ptr<ShardStore> store,
             MemoryBudget::Reservation memory = {})
      : elements_(elements),
        core_(std::move(core)),
        store_(std::move(store)),
        memory_(std::move(memory)),
        accounted_(store_->lasting_bytes()) {}

  // `payload` is that of the push being handled. `later`: null, or empty. If it is not null, an
  // update may be left running on a device: then the actions that follow it, except the push's
  // answer, are appended to `later`, to be carried out after store().Finish().
  // Errors: as ShardStore::Apply; kResourceExhausted  also beyond the budget. The push is lost,
  //         the shard unusable.
  absl::Status CarryOut(const ShardKey& key, const Actions& actions, const Gradient& payload,
                        ReplySink& sink, Actions* later = nullptr);

  // Restores more of the rows that a snapshot left for later. Called before anything else.
  // Errors: as RowStore::RestoreMore; kDataLoss  a dense shard; kResourceExhausted  beyond the
  //         budget.
  absl::Status RestoreMore(const v1::ShardSnapshot& piece);

  // Applies a record that another shard of this key has made.
  // Errors: kInvalidArgument  its gradient or its head does not fit. kDataLoss  it does not follow.
  //         Then nothing changes. Also those of CarryOut: then the core has accepted it
  //         and its position, and the shard is unusable.
  absl::Status Replay(const ShardKey& key, const v1::ShardRecord& record);

  // A copy of all of it. Errors: as of ShardStore::Save.
  absl::StatusOr<v1::ShardSnapshot> Snapshot() const;
  // The same without the rows of a bucket, which are pinned (RowStore::Capture).
  // Errors: as Snapshot.
  absl::StatusOr<v1::ShardSnapshot> CaptureAll(PinId pin);
  // Makes for checkpoint `id` a copy of all of it, or of the rows that changed since it was
  // captured for checkpoint `base` (0: none), if these are known and at most half of all. Later
  // captures may name `id` or `base` as their base. Rows of a bucket are not in it: they are pinned
  // (RowStore::Capture). Errors: as Snapshot.
  absl::StatusOr<v1::ShardSnapshot> Capture(CheckpointId id, CheckpointId base, PinId pin);
  void ForgetCaptures();  // The next Capture captures everything.

  // Same as RowStore's; a dense shard has room.
  absl::Status CheckRoom(const Gradient& gradient) const;

  const Range& elements() const { return elements_; }
  ShardCore& core() { return core_; }
  const ShardCore& core() const { return core_; }
  const ShardStore& store() const { return *store_; }
  ShardStore& store() { return *store_; }
  // Null: a dense shard.
  RowStore* rows() { return store_->row_store(); }
  const RowStore* rows() const { return std::as_const(*store_).row_store(); }

 private:
  struct Captured {
    CheckpointId id;
    int64_t version = 0;
  };

  absl::Status Account();               // Reserves what the store grew by.
  v1::ShardSnapshot SaveState() const;  // Leaves its numbers out.

  Range elements_;
  ShardCore core_;
  std::unique_ptr<ShardStore> store_;
  MemoryBudget::Reservation memory_;  // The reservation for the store.
  int64_t accounted_;                 // Bytes that are reserved.
  std::vector<Captured> captured_;    // Possible bases: at most two, the older first.
};

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_STORE_TABLES_TABLE_SHARD_H_
