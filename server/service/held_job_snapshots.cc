// HeldJob: snapshots, which readers read while the job goes on.
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/planted/planted_bug.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "server/service/held_job.h"
#include "server/service/held_job_sink.h"
#include "server/service/message_checks.h"

namespace capstan::server {

absl::Status HeldJob::CheckOpenLocked() const {
  CAPSTAN_RETURN_IF_ERROR(closed_);
  CAPSTAN_RETURN_IF_ERROR(failure_);
  return tables_.failure();
}

// A task that died before the scheduler heard of it may have completed more iterations on some
// servers than the snapshot is to contain: then this server cannot keep the snapshot.
absl::Status HeldJob::CheckVersionsLocked(const v1::CheckpointOrder& order,
                                          const std::vector<ShardKey>& keys) const {
  if (!order.has_version() || Planted(PlantedBug::kKeepAnyVersion)) return absl::OkStatus();
  for (const ShardKey& key : keys) {
    const int64_t version = tables_.Find(key)->core().version().value();
    if (version == order.version()) continue;
    return absl::FailedPreconditionError(absl::StrCat(NameOf(key), " is at version ", version,
                                                      ", expected that of iteration ",
                                                      order.version(), "; ask again"));
  }
  return absl::OkStatus();
}

absl::Status HeldJob::KeepSnapshot(const v1::CheckpointOrder& order) {
  Effects effects;
  absl::Status kept;
  {
    absl::MutexLock lock(&mutex_);
    kept = CheckOpenLocked();
    const std::vector<ShardKey> keys = PrimariesLocked();
    if (kept.ok()) kept = CheckVersionsLocked(order, keys);
    if (kept.ok() && !keys.empty()) {
      uint64_t pins = pins_;
      kept = snapshots_.Keep(order, keys, options_.clock->Now(), &pins, tables_);
      pins_ = pins;
    }
    TickAt(snapshots_.NextDeadline(), &effects);
  }
  Perform(&effects);
  return kept;
}

std::optional<HeldJob::CallId> HeldJob::ReadSnapshot(const v1::ReadSnapshotRequest& request,
                                                     v1::ReadSnapshotResponse* response,
                                                     Done done) {
  Effects effects;
  std::optional<CallId> waits;
  {
    absl::MutexLock lock(&mutex_);
    const CallId call = calls_.Begin(std::move(done));
    Sink sink(this, &effects.ended);
    absl::Status read = CheckOpenLocked();
    if (read.ok()) read = snapshots_.Read(request, options_.clock->Now(), tables_, response);
    const std::optional<ShardKey> shard = JobSnapshots::ShardOf(request);
    if (read.ok() && shard) {
      sink.HoldVersion(*shard, call,
                       snapshots_.VersionOf(CheckpointId(request.snapshot_id()), *shard));
    }
    waits = FinishLocked(call, Annotate(read, absl::StrCat("snapshot of ", options_.job)), sink,
                         &effects);
  }
  Perform(&effects);
  return waits;
}

void HeldJob::CloseSnapshot(const v1::CloseSnapshotRequest& request) {
  absl::MutexLock lock(&mutex_);
  snapshots_.Close(request, options_.clock->Now(), tables_);
}

std::vector<CheckpointId> HeldJob::Snapshots() const {
  absl::MutexLock lock(&mutex_);
  return snapshots_.open();
}

}  // namespace capstan::server
