// HeldJob: snapshots, which readers read while the job goes on.
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "server/service/held_job.h"

namespace capstan::server {

absl::Status HeldJob::CheckOpenLocked() const {
  CAPSTAN_RETURN_IF_ERROR(closed_);
  CAPSTAN_RETURN_IF_ERROR(failure_);
  return tables_.failure();
}

absl::Status HeldJob::KeepSnapshot(const v1::CheckpointOrder& order) {
  Effects effects;
  absl::Status kept;
  {
    absl::MutexLock lock(&mutex_);
    kept = CheckOpenLocked();
    std::vector<ShardKey> keys;
    for (const auto& [key, link] : links_) {
      if (link->is_primary()) keys.push_back(key);
    }
    if (kept.ok() && !keys.empty()) {
      kept = snapshots_.Keep(order, keys, options_.clock->Now(), &pins_, tables_);
    }
    TickAtLocked(snapshots_.NextDeadline(), &effects);
  }
  Perform(effects);
  return kept;
}

absl::Status HeldJob::ReadSnapshot(const v1::ReadSnapshotRequest& request,
                                   v1::ReadSnapshotResponse* response) {
  absl::MutexLock lock(&mutex_);
  absl::Status read = CheckOpenLocked();
  if (read.ok()) read = snapshots_.Read(request, options_.clock->Now(), tables_, response);
  return Annotate(read, absl::StrCat("snapshot of ", options_.job));
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
