#include "scheduler/core/placement/job_adoption.h"

#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status/status_macros.h"

namespace capstan::scheduler {
namespace {

constexpr size_t kShardsNamedMax = 4;  // Limit for each server.

// Returns "server-1 (table/shard 0/1, 0/4); server-2 or server-3 (table/shard 0/2)".
std::string TextOf(const std::vector<ShardMap::Lost>& lost) {
  std::map<std::string, std::vector<std::string>> by_holders;
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

// OK: every shard of the job is in a log here.
absl::Status CheckLogs(const JobRun& run, const Adoption& from) {
  if (!run.parts().shards.has_lost()) return absl::OkStatus();
  const std::vector<ShardMap::Lost> missing = run.parts().shards.WithoutLog();
  std::set<NodeId> others;
  for (const auto& [node, stored] : from.stored) {
    if (!stored.empty() && !run.parts().server_watch.Uses(node)) others.insert(node);
  }
  std::string message = absl::StrCat(
      missing.size(), " of its ", run.parts().routing->shards.size(),
      " shards are in no log here. The servers that held them last: ", TextOf(missing),
      ". Start each again under its name (--name) and with its data folder (--data-dir); "
      "logs that were removed after --log-grace do not come back");
  if (!others.empty()) {
    absl::StrAppend(&message, "; ", absl::StrJoin(others, ", "),
                    " brought logs of the job under another name");
  }
  return absl::FailedPreconditionError(message);
}

}  // namespace

absl::Status TakeUpRun(const Adoption& from, const Membership& membership, const WorkerSlots& slots,
                       Instant now, IncarnationCounter& incarnations, JobEntry& entry,
                       Events& events) {
  if (entry.run == nullptr || entry.run->parts().ended() || !entry.plan.log) {
    return absl::FailedPreconditionError(
        absl::StrCat(from.job, " did not run, or without a log, when it was recorded last"));
  }
  JobRun& run = *entry.run;
  // The other scheduler's counter may be ahead of this one's, because it began with the calendar of
  // another host (SchedulerCore::Options::first_incarnation).
  incarnations.RaiseTo(run.parts().tasks.LastIncarnation().Next());
  for (const ServerRef& server : run.parts().routing->servers) {
    incarnations.RaiseTo(server.incarnation.Next());
  }
  run.Adopt(from.cluster, incarnations.next, from.checkpoint_floor, now, events);
  JoinLiveServers(membership, from.stored, entry.plan, now, run, events);
  if (run.parts().ended()) return absl::FailedPreconditionError(run.parts().failure.message);
  CAPSTAN_RETURN_IF_ERROR(CheckLogs(run, from));
  // After a restart, the workers that this scheduler knew have some time to come back.
  if (slots.capacity(entry.plan.device) > 0 || membership.MayReturn(now)) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("no worker that could run tasks of ", from.job,
                   " is here: it would fail within a minute; start one and ask again"));
}

}  // namespace capstan::scheduler
