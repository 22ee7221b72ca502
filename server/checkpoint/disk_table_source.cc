#include "server/checkpoint/disk_table_source.h"

#include "absl/strings/str_cat.h"
#include "common/checkpoint/checkpoint_part.h"
#include "common/checkpoint/manifest.h"
#include "common/status/status_macros.h"

namespace capstan::server {

void DiskTableSource::BeginMaking() {
  const absl::MutexLock lock(&mutex_);
  folder_.clear();
  parts_.clear();
}

absl::StatusOr<v1::ShardSnapshot> DiskTableSource::FromCheckpoint(const std::string& folder,
                                                                  const ShardKey& shard) {
  JobId job;
  v1::CheckpointPart part;
  {
    const absl::MutexLock lock(&mutex_);
    if (folder != folder_) {
      // A folder of that name on this host may hold another checkpoint.
      Disk& disk = scheduler_ != nullptr ? *scheduler_ : *disk_;
      CAPSTAN_ASSIGN_OR_RETURN(const v1::CheckpointManifest manifest, ReadManifest(disk, folder));
      folder_ = folder;
      job_ = manifest.job_id();
      parts_.clear();
      for (const v1::CheckpointPart& entry : manifest.parts()) {
        parts_[{TableId(entry.table()), ShardId(entry.shard())}] = entry;
      }
    }
    const auto entry = parts_.find(shard);
    if (entry == parts_.end()) {
      return absl::NotFoundError(absl::StrCat(folder, " has no ", NameOf(shard)));
    }
    job = job_;
    part = entry->second;
  }
  absl::StatusOr<v1::ShardSnapshot> snapshot = ReadPart(*disk_, folder, job, part);
  if (snapshot.ok() || scheduler_ == nullptr) return snapshot;
  return ReadPart(*scheduler_, folder, job, part);
}

absl::Status DiskTableSource::FromLog(const JobId& job, const ShardKey& shard,
                                      ShardReader& reader) {
  if (log_ == nullptr) {
    return absl::NotFoundError(
        absl::StrCat("this server keeps no logs, expected one of job ", job));
  }
  return log_->Read(
      job, shard, [&](const v1::ShardSnapshot& snapshot) { return reader.Install(snapshot); },
      [&](const v1::ShardRecord& record) { return reader.Replay(record); });
}

}  // namespace capstan::server
