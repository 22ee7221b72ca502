#include "scheduler/state/orphaned_logs.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "common/observability/log.h"
#include "common/status/annotate.h"
#include "scheduler/store/archive.h"

namespace capstan::scheduler {
namespace {

constexpr absl::string_view kPrefix = "orphan/";

absl::StatusOr<JobRecord> Decode(const std::string& bytes, const JobId& id,
                                 const std::string& unique_id) {
  if (bytes.empty()) {
    return absl::NotFoundError(
        "no server has a record of where it stood beside its log: it had none yet, or one above "
        "1 MiB, or an earlier release of Capstan wrote the log");
  }
  absl::StatusOr<JobRecord> record = DecodeJobRecord(bytes);
  if (!record.ok() || (record->job == id && record->unique_id == unique_id)) return record;
  return absl::DataLossError(
      absl::StrCat("the record beside it is of ", record->job, " (", record->unique_id, ")"));
}

// Returns true if `record` should replace `known`.
bool Replaces(const absl::StatusOr<JobRecord>& record, const absl::StatusOr<JobRecord>& known) {
  if (absl::IsNotFound(known.status())) return true;
  if (!record.ok()) return false;
  return !known.ok() || record->IsNewerThan(*known);
}

}  // namespace

std::string ClusterIn(const std::string& unique_id) {
  return unique_id.substr(0, unique_id.find('-'));
}

StoreWrite OrphanedLogs::Encode(const std::string& unique_id, const OrphanedJob& job) {
  std::vector<std::pair<NodeId, OrphanedLog>> logs(job.logs.begin(), job.logs.end());
  return {absl::StrCat(kPrefix, unique_id),
          EncodeState(Moment(), [&](auto& archive) { archive(job.id, job.bytes, logs); })};
}

absl::StatusOr<OrphanedLogs> OrphanedLogs::Load(const StoreRows& rows) {
  OrphanedLogs loaded;
  for (auto row = rows.lower_bound(std::string(kPrefix)); row != rows.end(); ++row) {
    if (!absl::StartsWith(row->first, kPrefix)) break;
    const std::string unique_id = row->first.substr(kPrefix.size());
    OrphanedJob job;
    const absl::Status status = DecodeState(row->second, Moment(), [&job](auto& archive) {
      std::vector<std::pair<NodeId, OrphanedLog>> logs;
      archive(job.id, job.bytes, logs);
      job.logs.insert(logs.begin(), logs.end());
      return absl::OkStatus();
    });
    if (!status.ok()) {
      return Annotate(status, absl::StrCat("the store's row \"", row->first, "\""));
    }
    job.record = Decode(job.bytes, job.id, unique_id);
    loaded.jobs_.emplace(unique_id, std::move(job));
  }
  return loaded;
}

std::vector<StoreWrite> OrphanedLogs::Note(const NodeId& node, const v1::RegisterRequest& request,
                                           absl::Span<const StoredShard> stored,
                                           const std::set<std::string>& known) {
  std::set<std::string> changed;
  for (auto& [unique_id, job] : jobs_) {
    if (job.logs.erase(node) > 0) changed.insert(unique_id);
  }
  for (const v1::KeptLog& log : request.logs()) {
    const std::string& unique_id = log.unique_id();
    if (known.contains(unique_id)) continue;
    if (!jobs_.contains(unique_id) && jobs_.size() >= kJobsMax) {
      LogWarning({.job = log.job_id()}, "a log of it on {} is passed over: there are {} others",
                 node, jobs_.size());
      continue;
    }
    changed.insert(unique_id);
    OrphanedJob& job = jobs_[unique_id];
    if (job.id.empty()) job.record = Decode("", log.job_id(), unique_id);
    job.id = log.job_id();
    OrphanedLog& here = job.logs[node];
    here.damage = log.damage();
    std::copy_if(stored.begin(), stored.end(), std::back_inserter(here.shards),
                 [&](const StoredShard& shard) { return shard.unique_id == unique_id; });
    absl::StatusOr<JobRecord> record = Decode(log.record(), job.id, unique_id);
    if (!Replaces(record, job.record)) continue;
    job.bytes = log.record();
    job.record = std::move(record);
  }
  std::vector<StoreWrite> writes;
  for (const std::string& unique_id : changed) writes.push_back(Rewrite(unique_id));
  return writes;
}

std::vector<StoreWrite> OrphanedLogs::NoteRemoved(
    const NodeId& node, const google::protobuf::RepeatedPtrField<std::string>& removed) {
  std::vector<StoreWrite> writes;
  for (const std::string& unique_id : removed) {
    const auto job = jobs_.find(unique_id);
    if (job == jobs_.end() || job->second.logs.erase(node) == 0) continue;
    LogInfo({.job = job->second.id}, "its log on {} was removed: no job of this cluster", node);
    writes.push_back(Rewrite(unique_id));
  }
  return writes;
}

StoreWrite OrphanedLogs::Rewrite(const std::string& unique_id) {
  const OrphanedJob& job = jobs_.at(unique_id);
  return job.logs.empty() ? Forget(unique_id) : Encode(unique_id, job);
}

StoreWrite OrphanedLogs::Forget(const std::string& unique_id) {
  jobs_.erase(unique_id);
  return {absl::StrCat(kPrefix, unique_id), std::nullopt};
}

absl::StatusOr<std::string> OrphanedLogs::Find(const std::string& job) const {
  if (jobs_.contains(job)) return job;
  std::vector<std::string> meant;
  for (const auto& [unique_id, orphan] : jobs_) {
    if (orphan.id == job) meant.push_back(unique_id);
  }
  if (meant.size() == 1) return meant.front();
  if (meant.empty()) {
    return absl::NotFoundError(absl::StrCat("no server has a log of \"", job,
                                            "\" that belongs to no job of this cluster"));
  }
  return absl::FailedPreconditionError(absl::StrCat(
      meant.size(), " jobs had the id ", job, "; name one of them: ", absl::StrJoin(meant, ", ")));
}

}  // namespace capstan::scheduler
