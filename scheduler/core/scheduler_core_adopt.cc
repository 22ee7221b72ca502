// SchedulerCore: the adoption of jobs of another cluster, whose scheduler has lost its store, from
// their logs.
#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "common/status/status_macros.h"
#include "scheduler/core/scheduler_core.h"

namespace capstan::scheduler {
namespace {

constexpr size_t kShardsNamedMax = 4;  // Limit for each server.

// Returns the number in "<name>-<number>"; 0 if there is none.
uint64_t NumberIn(const JobId& job) {
  uint64_t number = 0;
  const size_t mark = job.rfind('-');
  if (mark == JobId::npos || !absl::SimpleAtoi(job.substr(mark + 1), &number)) return 0;
  return number;
}

// Returns "server-1 (table/shard 0/1, 0/4); server-2 or server-3 (table/shard 0/2)".
std::string TextOf(const std::vector<ShardMap::Lost>& lost) {
  absl::btree_map<std::string, std::vector<std::string>> by_holders;
  for (const ShardMap::Lost& shard : lost) {
    by_holders[absl::StrJoin(shard.holders, " or ")].push_back(
        absl::StrCat(shard.key.table.value(), "/", shard.key.shard.value()));
  }
  std::vector<std::string> parts;
  for (auto& [holders, shards] : by_holders) {
    if (shards.size() > kShardsNamedMax) {
      shards.resize(kShardsNamedMax);
      shards.push_back("...");
    }
    parts.push_back(absl::StrCat(holders, " (table/shard ", absl::StrJoin(shards, ", "), ")"));
  }
  return absl::StrJoin(parts, "; ");
}

}  // namespace

absl::Status SchedulerCore::MayAdopt(const JobPlan& plan, Instant now) const {
  const auto known = jobs_.find(plan.id);
  if (known == jobs_.end()) return CheckFolders(plan.folders, now);
  if (known->second.plan.unique_id == plan.unique_id) {
    return absl::AlreadyExistsError(absl::StrCat(plan.id, " is a job of this cluster already"));
  }
  return absl::AlreadyExistsError(absl::StrCat("another job of this cluster has the id ", plan.id,
                                               "; once that one has ended, `capstan job delete ",
                                               plan.id, "` frees it"));
}

absl::Status SchedulerCore::Adopt(const Adoption& from, Instant now, Actions& actions) {
  JobEntry& entry = jobs_.at(from.job);
  Events events;
  const absl::Status status = TakeUp(entry, from, now, events);
  if (!status.ok() || from.only_check) {
    Unload(from.job);
    return status;
  }
  entry.number = next_job_number_++;
  next_job_name_ = std::max(next_job_name_, NumberIn(from.job) + 1);
  running_.emplace(entry.number, from.job);
  actions.events.push_back(JobAdopted{from.job, from.cluster, from.record_age});
  for (Event& event : events) actions.events.push_back(std::move(event));
  nodes_changed_ = true;  // That row has the counters.
  desired_changed_ = true;
  Settle(now, actions);
  return absl::OkStatus();
}

absl::Status SchedulerCore::TakeUp(JobEntry& entry, const Adoption& from, Instant now,
                                   Events& events) {
  if (entry.run == nullptr || entry.run->ended() || !entry.plan.log) {
    return absl::FailedPreconditionError(
        absl::StrCat(from.job, " did not run, or without a log, when it was recorded last"));
  }
  JobRun& run = *entry.run;
  // The other scheduler's counter may be ahead of this one's, because it began with the calendar of
  // another host (Options::first_incarnation).
  next_incarnation_ = std::max(next_incarnation_, run.last_life().Next());
  for (const ServerRef& server : run.routing()->servers) {
    next_incarnation_ = std::max(next_incarnation_, server.incarnation.Next());
  }
  run.Adopt(from.cluster, next_incarnation_, from.checkpoint_floor, now, events);
  for (const Node* node : membership_.All()) {
    if (!node->alive || node->info.role != Role::kServer) continue;
    const auto stored = from.stored.find(node->id);
    run.OnServerJoined({node->id, node->info.address, node->incarnation},
                       stored == from.stored.end() ? absl::Span<const StoredShard>()
                                                   : absl::MakeConstSpan(stored->second),
                       node->closing(), now, events);
  }
  if (run.ended()) return absl::FailedPreconditionError(run.View(now).failure.message);
  CAPSTAN_RETURN_IF_ERROR(CheckLogs(run, from));
  // After a restart, the workers that this scheduler knew have some time to come back.
  if (slots_.capacity(entry.plan.device) > 0 || membership_.MayReturn(now)) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("no worker that could run tasks of ", from.job,
                   " is here: it would fail within a minute; start one and ask again"));
}

absl::Status SchedulerCore::CheckLogs(const JobRun& run, const Adoption& from) const {
  if (!run.shards().has_lost()) return absl::OkStatus();
  const std::vector<ShardMap::Lost> missing = run.shards().WithoutLog();
  absl::btree_set<NodeId> others;
  for (const auto& [node, stored] : from.stored) {
    if (!stored.empty() && !run.UsesServer(node)) others.insert(node);
  }
  std::string message = absl::StrCat(
      missing.size(), " of its ", run.routing()->shards.size(),
      " shards are in no log here. The servers that held them last: ", TextOf(missing),
      ". Start each again under its name (--name) and with its data folder (--data-dir)");
  if (!others.empty()) {
    absl::StrAppend(&message, "; ", absl::StrJoin(others, ", "),
                    " brought logs of the job under another name");
  }
  return absl::FailedPreconditionError(message);
}

}  // namespace capstan::scheduler
