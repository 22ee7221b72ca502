// A store that is an older copy of itself, as a backup that was put back: whoever has seen more
// ends the jobs that it has something of.
#include <string>

#include "absl/container/btree_set.h"
#include "absl/strings/str_cat.h"
#include "scheduler/core/scheduler_core.h"

namespace capstan::scheduler {
namespace {

std::string UnknownLife(const std::string& who, Incarnation life) {
  return absl::StrCat(who, " has incarnation ", life.value(),
                      ", expected one that this scheduler has given out");
}

}  // namespace

void SchedulerCore::NoteUnknownLife(const NodeReport& report, Instant now, Actions& actions) {
  NoteOlderStore(report, UnknownLife(report.node, report.incarnation), now, actions);
}

void SchedulerCore::NoteUnknownLife(const TaskKey& task, Instant now, Actions& actions) {
  JobRun* run = RunOf(task.job);
  if (run == nullptr || run->FindLife(task) != nullptr) return;
  run->OnOlderStore(UnknownLife(absl::StrCat("task ", task.rank.value()), task.incarnation), now,
                    actions.events);
  Settle(now, actions);
}

// The numbers go on from what the node has seen: an equal one would be taken for the same state.
void SchedulerCore::NoteNewerState(const NodeReport& report, NodeState& state, Instant now,
                                   Actions& actions) {
  const Generation expected = state.generation;
  state.generation = report.generation_seen.Next();
  nodes_changed_ = true;
  NoteOlderStore(
      report,
      absl::StrCat(report.node, " has seen desired state ", report.generation_seen.value(),
                   ", expected at most ", expected.value()),
      now, actions);
}

void SchedulerCore::NoteOlderStore(const NodeReport& report, const std::string& seen, Instant now,
                                   Actions& actions) {
  absl::btree_set<JobId> concerned;
  for (const TableReport& table : report.tables) concerned.insert(table.job);
  for (const TaskState& state : report.tasks) concerned.insert(state.task.job);
  for (const TaskKey& task : slots_.Desired(report.node)) concerned.insert(task.job);
  for (const JobEntry* entry : Running()) {
    if (entry->run->UsesServer(report.node)) concerned.insert(entry->plan.id);
  }
  for (const JobId& job : concerned) {
    if (JobRun* run = RunOf(job)) run->OnOlderStore(seen, now, actions.events);
  }
  Settle(now, actions);
}

}  // namespace capstan::scheduler
