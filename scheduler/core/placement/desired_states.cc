#include "scheduler/core/placement/desired_states.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "scheduler/core/placement/drain_state.h"

namespace capstan::scheduler {

// ---------------------------------------------------------------- nodes

void DesiredStates::RemoveNode(const NodeDied& died, std::vector<Reply>& replies) {
  const auto it = nodes_.find(died.node);
  if (it == nodes_.end()) return;
  if (it->second.held) {
    NodeReply reply{.ticket = it->second.ticket};
    reply.status = absl::AbortedError(absl::StrCat(
        died.node, ": incarnation ", died.incarnation.value(), " is dead: ", died.why));
    replies.push_back(std::move(reply));
  }
  nodes_.erase(it);
}

bool DesiredStates::RaiseGeneration(const NodeId& node, Generation seen) {
  const auto it = nodes_.find(node);
  if (it == nodes_.end()) return false;
  it->second.generation = std::max(it->second.generation, seen).Next();
  return true;
}

bool DesiredStates::IsNewest(const NodeId& node, Generation seen) const {
  const auto it = nodes_.find(node);
  return it != nodes_.end() && it->second.generation == seen;
}

void DesiredStates::HoldNode(Ticket ticket, const NodeId& node, Generation seen, Instant now) {
  NodeState& state = nodes_[node];
  state.held = true;
  state.ticket = ticket;
  state.seen = seen;
  state.hold_until = now + options_.sync_interval;
}

void DesiredStates::AnswerNode(const NodeId& node, std::vector<Reply>& replies) {
  const auto it = nodes_.find(node);
  if (it != nodes_.end() && it->second.held) Answer(node, it->second, replies);
}

void DesiredStates::Answer(const NodeId& node, NodeState& state, std::vector<Reply>& replies) {
  NodeReply reply{
      .ticket = state.ticket, .status = absl::OkStatus(), .generation = state.generation};
  reply.revision = revisions_.current();
  state.held = false;
  reply.changed = state.seen != state.generation;
  reply.may_stop = MayStop(node, membership_, slots_, jobs_);
  if (reply.changed) {
    for (const auto& [job, routing, membership, checkpoint, record] : state.desired.tables) {
      const JobRun& run = *jobs_.RunOf(job);
      reply.tables.push_back({run.parts().routing, run.parts().members.membership(),
                              run.parts().server_watch.source(),
                              run.parts().checkpoints.all().order(), record});
    }
    reply.tasks = state.desired.tasks;
    for (const TaskKey& task : reply.tasks) {
      std::vector<int> gpus = slots_.GpusOf(node, task);
      if (!gpus.empty()) reply.gpus.push_back({task, std::move(gpus)});
    }
  }
  replies.push_back(std::move(reply));
}

DesiredStates::Desired DesiredStates::WantedOf(const Node& node) const {
  Desired wanted;
  if (node.info.role == Role::kWorker) {
    wanted.tasks = slots_.Desired(node.id);
    return wanted;
  }
  for (const JobEntry* entry : jobs_.Running()) {
    const JobRun& run = *entry->run;
    if (!run.parts().server_watch.Uses(node.id)) continue;
    wanted.tables.push_back({entry->plan.id, run.parts().routing->generation,
                             run.parts().members.membership().generation,
                             run.parts().checkpoints.all().order().id, entry->record});
  }
  return wanted;
}

// ---------------------------------------------------------------- tasks

void DesiredStates::HoldTask(Ticket ticket, const TaskReport& report, Instant now,
                             std::vector<Reply>& replies) {
  AnswerTask(report.task, replies);
  held_tasks_[report.task] = {.ticket = ticket,
                              .assignment_seen = report.assignment_seen,
                              .routing_seen = report.routing_seen,
                              .hold_until = now + options_.sync_interval};
}

void DesiredStates::AnswerTask(const TaskKey& key, std::vector<Reply>& replies) {
  const auto it = held_tasks_.find(key);
  if (it == held_tasks_.end()) return;
  const HeldTask held = it->second;
  held_tasks_.erase(it);
  TaskReply reply{.ticket = held.ticket, .status = absl::OkStatus(), .job = key.job};
  reply.lease = options_.lease;
  reply.sync_interval = options_.sync_interval;
  reply.revision = revisions_.current();
  const JobRun* run = jobs_.RunOf(key.job);
  const Task* task = run == nullptr ? nullptr : run->parts().tasks.Find(key);
  if (task != nullptr) {
    reply.has_assignment = task->assignment.generation > held.assignment_seen;
    if (reply.has_assignment) reply.assignment = task->assignment;
    if (run->parts().routing->generation > held.routing_seen) reply.routing = run->parts().routing;
    reply.first_routing = held.routing_seen == Generation(0);
  }
  replies.push_back(std::move(reply));
}

void DesiredStates::AnswerTaskUnlessItWaits(const TaskKey& key, std::vector<Reply>& replies) {
  const auto it = held_tasks_.find(key);
  if (it == held_tasks_.end()) return;
  const HeldTask& held = it->second;
  const JobRun* run = jobs_.RunOf(key.job);
  const Task* task = run == nullptr ? nullptr : run->parts().tasks.Find(key);
  const bool waits = task != nullptr && task->idle &&
                     !run->parts().task_watch.HasUnfinishedWork(*task) &&
                     held.assignment_seen == task->assignment.generation &&
                     held.routing_seen == run->parts().routing->generation;
  if (!waits) AnswerTask(key, replies);
}

void DesiredStates::RefuseTasks(std::vector<Reply>& replies) {
  std::erase_if(held_tasks_, [&](const auto& entry) {
    const auto& [key, held] = entry;
    if (TaskOf(jobs_, key) != nullptr) return false;
    TaskReply reply{.ticket = held.ticket, .status = absl::OkStatus(), .job = key.job};
    reply.status =
        absl::AbortedError(absl::StrCat(key.job, " task ", key.rank.value(), ": incarnation ",
                                        key.incarnation.value(), " is not wanted any more"));
    replies.push_back(std::move(reply));
    return true;
  });
}

// ---------------------------------------------------------------- all

bool DesiredStates::IsOutdated() {
  for (JobEntry* entry : jobs_.Running()) {
    if (entry->desired_version == entry->run->parts().desired_version) continue;
    entry->desired_version = entry->run->parts().desired_version;
    changed_ = true;
  }
  return changed_;
}

// The progress of a BSP job is the version of its tables, so only decisions change its record. A
// new routing table changes the record at once, because no push may be acknowledged under a table
// that the record does not have.
void DesiredStates::RefreshRecords(Instant now) {
  if (options_.record_interval == absl::InfiniteDuration()) return;
  for (JobEntry* entry : jobs_.Running()) {
    if (!entry->plan.log) continue;
    const JobRun& run = *entry->run;
    const Routing& routing = *run.parts().routing;
    const uint64_t state = entry->plan.consistency.synchronous() ? run.parts().durable_version()
                                                                 : run.parts().revision;
    const absl::Duration interval =
        options_.record_interval + kRecordIntervalPerShard * routing.shards.size();
    const bool due = state != entry->record && now >= entry->record_at + interval;
    if (!due && entry->record_routing == routing.generation) continue;
    entry->record = state;
    entry->record_routing = routing.generation;
    entry->record_at = now;
    changed_ = true;
  }
}

bool DesiredStates::Refresh(Instant now, std::vector<Reply>& replies) {
  RefreshRecords(now);
  if (!IsOutdated()) return false;
  changed_ = false;
  RefuseTasks(replies);
  bool any = false;
  for (auto& [id, state] : nodes_) {
    Desired wanted = WantedOf(*membership_.Find(id));
    if (wanted == state.desired) continue;
    state.desired = std::move(wanted);
    ++state.generation;
    any = true;
  }
  return any;
}

void DesiredStates::AnswerChanged(std::vector<Reply>& replies) {
  for (auto& [id, state] : nodes_) {
    if (state.held && state.seen != state.generation) Answer(id, state, replies);
  }
  for (JobEntry* entry : jobs_.Running()) {
    for (const Rank rank : entry->run->TakeChangedAssignments()) {
      AnswerTask({entry->plan.id, rank, entry->run->parts().tasks.at(rank).incarnation}, replies);
    }
  }
}

void DesiredStates::AnswerExpired(Instant now, std::vector<Reply>& replies) {
  for (auto& [id, state] : nodes_) {
    if (state.held && now >= state.hold_until) Answer(id, state, replies);
  }
  std::vector<TaskKey> expired;
  for (const auto& [key, held] : held_tasks_) {
    if (now >= held.hold_until) expired.push_back(key);
  }
  for (const TaskKey& key : expired) AnswerTask(key, replies);
}

Instant DesiredStates::NextDeadline() const {
  Instant next = Instant::InfiniteFuture();
  for (const auto& [id, state] : nodes_) {
    if (state.held) next = std::min(next, state.hold_until);
  }
  for (const auto& [key, held] : held_tasks_) next = std::min(next, held.hold_until);
  return next;
}

}  // namespace capstan::scheduler
