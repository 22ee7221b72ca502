// SchedulerCore: an older store, such as a restored backup. If a node, a task or a log has seen
// later decisions, all jobs in which it takes part end, also those that have not begun by this
// store.
#include <algorithm>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "scheduler/core/scheduler_core.h"

namespace capstan::scheduler {
namespace {

// `witness` has heard of decisions that are not in the scheduler's store, or has a log from such
// decisions. The job ends, because its routing table may name copies that are out of date, and the
// work of its tasks may be unknown.
Failure OlderStore(const std::string& witness) {
  return {FailureReason::kInternal,
          absl::StrCat(witness,
                       " knows of decisions that the scheduler does not know: the scheduler's "
                       "store is an older copy of itself, and what it decided since is lost; go on "
                       "from a checkpoint")};
}

}  // namespace

void SchedulerCore::OnOlderStore(const NodeReport& report, Instant now, Actions& actions) {
  // Otherwise the node could take a new desired state for an old one with the same number.
  if (desired_.RaiseGeneration(report.node, report.generation_seen)) nodes_changed_ = true;
  std::set<JobId> concerned;
  for (const TableReport& table : report.tables) concerned.insert(table.job);
  for (const TaskState& state : report.tasks) concerned.insert(state.task.job);
  for (const TaskKey& task : placer_.slots().Desired(report.node)) concerned.insert(task.job);
  for (const JobEntry* entry : jobs_.Running()) {
    if (entry->run->parts().server_watch.Uses(report.node)) concerned.insert(entry->plan.id);
  }
  for (const JobId& job : concerned) {
    JobEntry* entry = jobs_.Find(job);
    if (entry != nullptr) EndForOlderStore(*entry, report.node, now, actions.events);
  }
  Settle(now, actions);
}

void SchedulerCore::EndForLaterLogs(const NodeId& server, absl::Span<const StoredShard> stored,
                                    Instant now, Events& events) {
  for (const JobEntry* entry : jobs_.All()) {
    const bool later = std::any_of(stored.begin(), stored.end(), [&](const StoredShard& log) {
      const bool is_own = entry->run == nullptr ? entry->plan.HasLog(log.job, log.unique_id)
                                                : entry->run->parts().server_watch.HasWritten(log);
      return is_own && !revisions_.Has(log.seen);
    });
    if (!later) continue;
    EndForOlderStore(*jobs_.Find(entry->plan.id), absl::StrCat("the log of ", server), now, events);
  }
}

void SchedulerCore::EndForOlderStore(JobEntry& entry, const std::string& witness, Instant now,
                                     Events& events) {
  const Failure failure = OlderStore(witness);
  if (entry.run != nullptr) return entry.run->End(JobState::kFailed, failure, now, events);
  if (!entry.stopped) EndUnstarted(entry, failure, now, events);
}

}  // namespace capstan::scheduler
