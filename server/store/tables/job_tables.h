// JobTables: the shards of one job on this server, primaries and replicas, by key.
//
// Carries every core's actions out in their order. Answers and records go to a ReplySink, with the
// numbers in view.
// Thread safety: thread-compatible. While nobody calls Put, Remove, Tick, NextDeadline or Describe,
// the other methods may run at the same time for different shards. failure() and Fail: thread-safe.
#ifndef CAPSTAN_SERVER_STORE_TABLES_JOB_TABLES_H_
#define CAPSTAN_SERVER_STORE_TABLES_JOB_TABLES_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/cord.h"
#include "absl/types/span.h"
#include "common/time/instant.h"
#include "common/types/ids.h"
#include "common/wire/number_format.h"
#include "proto/parameter_server.pb.h"
#include "server/core/messages/membership.h"
#include "server/core/messages/messages.h"
#include "server/store/gradient.h"
#include "server/store/shard_store.h"
#include "server/store/tables/first_error.h"
#include "server/store/tables/shard_factory.h"
#include "server/store/tables/table_shard.h"

namespace capstan::server {

class JobTables {
 public:
  // Holds nothing yet.
  explicit JobTables(std::shared_ptr<const ShardFactory> factory) : factory_(std::move(factory)) {}

  // Adds the shard. Returns the shard of this key that it replaces, if there is one.
  std::optional<TableShard> Put(const ShardKey& key, TableShard shard);
  void Remove(const ShardKey& key);  // An unknown key is ignored.

  // Null: the shard is not held here. Valid until the next Put or Remove.
  const TableShard* Find(const ShardKey& key) const;

  // Same as ShardCore's methods of these names. REQUIRES: the shard is held; `gradient` is of it.
  // Errors: also failure(), and those of TableShard::CheckRoom.
  absl::Status CheckPush(const ShardKey& key, const PushHead& push, const Gradient& gradient) const;
  absl::Status CheckPull(const ShardKey& key, const PullHead& pull) const;
  absl::Status Push(const ShardKey& key, const PushHead& push, const Gradient& gradient,
                    ReplySink& sink);
  // A push whose update is running on a device, and the actions that follow it.
  struct BegunPush {
    ShardKey key;
    Actions later;
    Gradient gradient;
  };
  // Same as Push, but may leave an update running on a device: then the push is added to `begun`.
  // Until FinishPushes has waited for all of `begun` and passed on the answers that follow, the
  // caller keeps the gradient valid and calls nothing else for the shard.
  absl::Status BeginPush(const ShardKey& key, const PushHead& push, const Gradient& gradient,
                         ReplySink& sink, std::vector<BegunPush>* begun);
  absl::Status FinishPushes(const std::vector<BegunPush>& begun, ReplySink& sink);
  absl::Status Pull(const ShardKey& key, const PullHead& pull, Instant now, ReplySink& sink);
  // Same as ShardStore::Parse, with the shard's name in errors. May be called while the shard
  // changes.
  absl::StatusOr<Gradient> ParseGradient(const ShardKey& key, const absl::Cord& payload,
                                         NumberFormat format, const RowKeys& listed = {}) const;
  void CancelPull(const ShardKey& key, PullToken token);  // Ignored if the shard is not held.
  void SetMembership(const ShardKey& key, const Membership& membership, ReplySink& sink);
  void MakeBarrier(const ShardKey& key, ReplySink& sink);
  void Tick(Instant now, ReplySink& sink);
  Instant NextDeadline() const;

  // Replays a record on a replica. REQUIRES: the shard is held.
  // Errors: as TableShard::Replay. kResourceExhausted, or an error after the core has accepted the
  //         record, also sets failure(); otherwise nothing changes.
  absl::Status Replay(const ShardKey& key, const v1::ShardRecord& record);

  // Captures use it. REQUIRES: the shard is held.
  TableShard& at(const ShardKey& key) { return shards_.at(key); }
  // Same as ShardStore's methods of these names. A shard that is not held any more has no pinned
  // rows.
  absl::StatusOr<std::optional<uint64_t>> ReadPinned(const ShardKey& key, const PinnedRead& read,
                                                     v1::ShardSnapshot* piece);
  void Unpin(const ShardKey& key, PinId pin);

  // If not OK, a push or record was lost, or a shard cannot be read: these tables refuse
  // everything.
  absl::Status failure() const { return failure_->Get(); }
  void Fail(const absl::Status& status) { failure_->Update(status); }

  // Returns one entry for each table that has a shard for which `counts` returns true; job_id is
  // left empty. `bytes` counts all shards held here.
  std::vector<v1::HeldTable> Describe(const std::function<bool(const ShardKey&)>& counts) const;

 private:
  absl::Status CarryOut(const ShardKey& key, TableShard& shard, const Actions& actions,
                        const Gradient& payload, ReplySink& sink, Actions* later = nullptr);

  const std::shared_ptr<const ShardFactory> factory_;  // Shared with the makers of shards.
  std::map<ShardKey, TableShard> shards_;
  std::unique_ptr<FirstError> failure_ = std::make_unique<FirstError>();  // Makes this movable.
};

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_STORE_TABLES_JOB_TABLES_H_
