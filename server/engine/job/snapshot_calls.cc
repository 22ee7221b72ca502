#include "server/engine/job/snapshot_calls.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/planted/planted_bug.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "server/engine/job/call_sink.h"

namespace capstan::server {

// A task that died before the scheduler heard of it may have completed more iterations on some
// servers than the snapshot is to contain: then this server cannot keep the snapshot.
absl::Status SnapshotCalls::CheckVersionsLocked(const v1::CheckpointOrder& order,
                                                const std::vector<ShardKey>& keys) const {
  if (!order.has_version() || Planted(PlantedBug::kKeepAnyVersion)) return absl::OkStatus();
  for (const ShardKey& key : keys) {
    const int64_t version = state_->tables.Find(key)->core().version().value();
    if (version == order.version()) continue;
    return absl::FailedPreconditionError(absl::StrCat(NameOf(key), " is at version ", version,
                                                      ", expected that of iteration ",
                                                      order.version(), "; ask again"));
  }
  return absl::OkStatus();
}

absl::Status SnapshotCalls::Keep(const v1::CheckpointOrder& order) {
  JobEffects effects;
  absl::Status kept;
  {
    absl::MutexLock lock(&state_->mutex);
    kept = state_->CheckOpenLocked();
    const std::vector<ShardKey> keys = state_->PrimariesLocked();
    if (kept.ok()) kept = CheckVersionsLocked(order, keys);
    if (kept.ok() && !keys.empty()) {
      uint64_t pins = state_->pins;
      kept =
          state_->snapshots.Keep(order, keys, state_->options.clock->Now(), &pins, state_->tables);
      state_->pins = pins;
    }
    state_->TickAt(state_->snapshots.NextDeadline(), &effects);
  }
  commits_->Perform(&effects);
  return kept;
}

std::optional<SnapshotCalls::CallId> SnapshotCalls::Read(const v1::ReadSnapshotRequest& request,
                                                         v1::ReadSnapshotResponse* response,
                                                         Done done) {
  JobEffects effects;
  std::optional<CallId> waits;
  {
    absl::MutexLock lock(&state_->mutex);
    const CallId call = state_->calls.Begin(std::move(done));
    CallSink sink(state_, &effects.ended);
    absl::Status read = state_->CheckOpenLocked();
    if (read.ok())
      read =
          state_->snapshots.Read(request, state_->options.clock->Now(), state_->tables, response);
    const std::optional<ShardKey> shard = JobSnapshots::ShardOf(request);
    if (read.ok() && shard) {
      sink.HoldVersion(*shard, call,
                       state_->snapshots.VersionOf(CheckpointId(request.snapshot_id()), *shard));
    }
    waits = commits_->FinishLocked(
        call, Annotate(read, absl::StrCat("snapshot of ", state_->options.job)), sink, &effects);
  }
  commits_->Perform(&effects);
  return waits;
}

void SnapshotCalls::Close(const v1::CloseSnapshotRequest& request) {
  absl::MutexLock lock(&state_->mutex);
  state_->snapshots.Close(request, state_->options.clock->Now(), state_->tables);
}

std::vector<CheckpointId> SnapshotCalls::open() const {
  absl::MutexLock lock(&state_->mutex);
  return state_->snapshots.open();
}

}  // namespace capstan::server
