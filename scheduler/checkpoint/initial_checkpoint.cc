#include "scheduler/checkpoint/initial_checkpoint.h"

#include <bit>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/checkpoint_folder.h"
#include "common/checkpoint/shard_file.h"
#include "common/status/status_macros.h"
#include "common/storage/write_durably.h"
#include "scheduler/checkpoint/job_checkpoint.h"
#include "scheduler/codec/shared_codec.h"
#include "scheduler/core/messages/placement.h"
#include "scheduler/core/plan/epoch_plan.h"

namespace capstan::scheduler {
namespace {

static_assert(std::endian::native == std::endian::little,
              "values are written as they lie in memory");

constexpr CheckpointId kInitialId{1};
// The assumed number of servers of a job that uses all servers. Tables are cut for that number.
constexpr int kServersAssumed = 4;

// Returns the snapshot of a shard without updates. `table` is empty if it has rows.
v1::ShardSnapshot SnapshotOf(const std::vector<float>& table, const Range& elements) {
  v1::ShardSnapshot snapshot;
  snapshot.mutable_state();
  snapshot.set_elements(elements.size());
  if (table.empty()) return snapshot;
  snapshot.set_values(table.data() + elements.begin,
                      static_cast<size_t>(elements.size()) * sizeof(float));
  return snapshot;
}

}  // namespace

std::string InitialCheckpointPath(const std::string& data_folder, const AdmittedJob& job) {
  return CheckpointPath(absl::StrCat(data_folder, "/initial-weights/", job.plan.unique_id),
                        kInitialId);
}

absl::Status WriteInitialCheckpoint(Disk& disk, const std::string& folder, const AdmittedJob& job,
                                    const std::vector<std::vector<float>>& values,
                                    int64_t unix_ms) {
  CAPSTAN_RETURN_IF_ERROR(disk.MakeFolder(folder));
  CheckpointPublish publish{.job = job.plan.id,
                            .id = kInitialId,
                            .folder = folder,
                            .job_folder = FolderOf(folder),
                            .parts = {},
                            .writers = {},
                            .at = {}};
  const int servers = job.plan.servers > 0 ? job.plan.servers : kServersAssumed;
  for (size_t t = 0; t < job.plan.tables.size(); ++t) {
    const TableId table(static_cast<int32_t>(t));
    int32_t shard = 0;
    for (const Range& elements : CutTable(job.plan.tables[t], servers)) {
      CAPSTAN_ASSIGN_OR_RETURN(const v1::CheckpointPart part,
                               WriteShardFile(disk, folder, job.plan.id, {table, ShardId(shard++)},
                                              elements, SnapshotOf(values.at(t), elements)));
      publish.parts.push_back(DecodePart(part));
      publish.writers.push_back({});
    }
  }
  publish.at.untrained = {{0, EpochPlan(job.plan).Samples(Epoch(0))}};
  return PublishCheckpoint(disk, publish, job, unix_ms);
}

absl::Status RemoveInitialCheckpoint(Disk& disk, const std::string& folder) {
  CAPSTAN_RETURN_IF_ERROR(RemoveCheckpoint(disk, folder));
  const absl::Status removed = disk.Remove(FolderOf(folder));
  return absl::IsNotFound(removed) ? absl::OkStatus() : removed;
}

}  // namespace capstan::scheduler
