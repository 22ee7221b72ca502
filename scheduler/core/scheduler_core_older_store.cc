// SchedulerCore: an older store, such as a restored backup. If a node or task has seen later
// decisions, all jobs that it takes part in end.
#include <algorithm>

#include "absl/container/btree_set.h"
#include "scheduler/core/scheduler_core.h"

namespace capstan::scheduler {

void SchedulerCore::OnOlderStore(const NodeReport& report, Instant now, Actions& actions) {
  if (const auto node = nodes_.find(report.node); node != nodes_.end()) {
    // The node would take a new desired state with a number that it has seen for the old state.
    Generation& generation = node->second.generation;
    generation = std::max(generation, report.generation_seen).Next();
    nodes_changed_ = true;
  }
  absl::btree_set<JobId> concerned;
  for (const TableReport& table : report.tables) concerned.insert(table.job);
  for (const TaskState& state : report.tasks) concerned.insert(state.task.job);
  for (const TaskKey& task : slots_.Desired(report.node)) concerned.insert(task.job);
  for (const JobEntry* entry : Running()) {
    if (entry->run->UsesServer(report.node)) concerned.insert(entry->plan.id);
  }
  for (const JobId& job : concerned) {
    const auto it = jobs_.find(job);
    if (it == jobs_.end()) continue;
    JobEntry& entry = it->second;
    if (entry.run != nullptr) {
      entry.run->OnOlderStore(report.node, now, actions.events);
    } else if (!entry.stopped) {
      EndUnstarted(entry, JobRun::OlderStore(report.node), now, actions.events);
    }
  }
  Settle(now, actions);
}

bool SchedulerCore::HasLaterLog(const JobRun& run, absl::Span<const StoredShard> stored) const {
  return std::any_of(stored.begin(), stored.end(), [&](const StoredShard& log) {
    return run.HasWritten(log) && !revisions_.Has(log.seen);
  });
}

}  // namespace capstan::scheduler
