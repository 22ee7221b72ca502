// SchedulerCore: nodes whose connection breaks, and nodes that are drained.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status/status_macros.h"
#include "scheduler/core/scheduler_core.h"

namespace capstan::scheduler {

void SchedulerCore::OnSyncBroken(const NodeId& node, Incarnation incarnation, Instant now,
                                 Actions& actions) {
  NoteStall(now, actions);
  const Node* found = membership_.Find(node);
  const auto state = nodes_.find(node);
  if (found == nullptr || found->incarnation != incarnation || state == nodes_.end()) return;
  if (state->second.held) AnswerNode(node, state->second, actions);
  membership_.Broken(node, incarnation, now);
}

// A late timer means that this process did not run. Then this process caused the silence and the
// cut calls, so no node is dead because of them.
void SchedulerCore::NoteStall(Instant now, Actions& actions) {
  if (now < due_ || now - due_ < options_.read_lease) return;
  actions.events.push_back(SchedulerStalled{now - due_});
  // The connections stayed open, so nodes need no time to come back.
  membership_.Restored(now, absl::ZeroDuration());
  for (JobEntry* entry : Running()) entry->run->Restored(now, absl::ZeroDuration());
  due_ = NextDeadline();
}

// ---------------------------------------------------------------- drain

absl::Status SchedulerCore::DrainNode(Ticket ticket, const NodeId& node, bool cancel,
                                      absl::Duration limit, Instant now, Actions& actions) {
  if (drain_watches_.size() >= options_.watches_max) {
    return absl::ResourceExhaustedError(absl::StrCat(
        drain_watches_.size(), " calls wait for nodes to be drained; ask again later"));
  }
  CAPSTAN_RETURN_IF_ERROR(membership_.SetDraining(node, !cancel));
  NoteClosing(*membership_.Find(node), now, actions);
  drain_watches_.push_back({ticket, node, cancel ? now : now + limit});
  Settle(now, actions);
  return absl::OkStatus();
}

// Applies that the node began to close, or is in use again.
void SchedulerCore::NoteClosing(const Node& node, Instant now, Actions& actions) {
  nodes_changed_ = true;
  if (!node.alive) return;
  if (node.info.role == Role::kWorker) {
    if (node.closing()) {
      slots_.CloseNode(node.id);
    } else {
      slots_.OpenNode(node.id);
    }
    return;
  }
  const ServerRef server{node.id, node.info.address, node.incarnation};
  for (JobEntry* entry : Running()) {
    entry->run->OnServerDraining(server, node.closing(), now, actions.events);
  }
}

// A task may leave a drained daemon if another daemon has a free slot, or if its job has a task on
// a daemon that is not closing.
bool SchedulerCore::MayMoveTask(const TaskKey& key) const {
  if (slots_.free(jobs_.at(key.job).plan.device) > 0) return true;
  const JobRun& run = *RunOf(key.job);
  const std::vector<TaskKey> placed = run.PlacedTasks();
  return std::any_of(placed.begin(), placed.end(), [&](const TaskKey& other) {
    const Node* node = membership_.Find(run.task(other.rank).node);
    return node != nullptr && !node->closing();
  });
}

void SchedulerCore::MoveTasks(Instant now, Actions& actions) {
  for (const Node* node : membership_.All()) {
    // A leaving daemon ends its tasks itself.
    if (!node->alive || !node->draining || node->leaving) continue;
    for (const TaskKey& key : slots_.Desired(node->id)) {
      JobRun* run = RunOf(key.job);
      if (run == nullptr || run->FindLife(key) == nullptr || !MayMoveTask(key)) continue;
      run->MoveTask(key.rank, absl::StrCat(node->id, " is drained"), now, actions.events);
      ReleaseSlots(actions);
      PlaceTasks(now, actions);
    }
  }
  MoveStranded(now, actions);
}

// Moves stranded tasks. Such a task has left a worker from which it cannot reach a server, but is
// on that worker again, because no other worker had a free slot.
void SchedulerCore::MoveStranded(Instant now, Actions& actions) {
  for (const JobEntry* entry : Running()) {
    JobRun& run = *entry->run;
    for (const TaskKey& key : run.PlacedTasks()) {
      const NodeId server = run.StrandedFrom(key.rank);
      if (server.empty()) continue;
      if (!slots_.Choose(entry->plan.device, run.AvoidedWorkers())) break;
      run.MoveTask(key.rank, absl::StrCat("it cannot reach ", server), now, actions.events);
      ReleaseSlots(actions);
      PlaceTasks(now, actions);
    }
  }
}

std::vector<JobId> SchedulerCore::AwaitLogOf(const NodeId& node) const {
  std::vector<JobId> jobs;
  for (const auto& [number, job] : running_) {
    if (RunOf(job)->AwaitsLogOf(node)) jobs.push_back(job);
  }
  return jobs;
}

bool SchedulerCore::MayStop(const NodeId& node) const {
  if (!AwaitLogOf(node).empty()) return false;
  const Node* found = membership_.Find(node);
  if (found == nullptr || !found->alive) return true;
  return found->closing() && slots_.Taken(node) == 0 && ShardsOn(node) == 0;
}

DrainReply SchedulerCore::DrainState(const NodeId& node) const {
  DrainReply reply{.safe_to_stop = MayStop(node)};
  reply.shards = ShardsOn(node);
  reply.tasks = slots_.Taken(node);
  if (reply.safe_to_stop) return reply;
  const Node* found = membership_.Find(node);
  if (found != nullptr && found->alive && !found->closing()) {
    reply.detail = absl::StrCat(node, " is in use");
    return reply;
  }
  std::vector<std::string> what;
  if (const std::vector<JobId> jobs = AwaitLogOf(node); !jobs.empty()) {
    what.push_back(absl::StrCat(absl::StrJoin(jobs, ", "), " waits for the log on its disk"));
  }
  std::vector<JobId> moving;
  std::vector<JobId> stuck;
  for (const auto& [number, job] : running_) {
    const ShardMap& shards = RunOf(job)->shards();
    if (shards.CopiesOn(node) == 0) continue;
    (shards.servers().CanMoveFrom(node) ? moving : stuck).push_back(job);
  }
  if (!moving.empty()) {
    what.push_back(absl::StrCat("its shards of ", absl::StrJoin(moving, ", "), " are being moved"));
  }
  if (!stuck.empty()) {
    what.push_back(
        absl::StrCat("there is no other server for its shards of ", absl::StrJoin(stuck, ", ")));
  }
  if (reply.tasks > 0 && slots_.Desired(node).empty()) {
    what.push_back(absl::StrCat(reply.tasks, " tasks are ending"));
  } else if (reply.tasks > 0) {
    what.push_back(absl::StrCat("there is no other slot for its ", reply.tasks, " tasks"));
  }
  reply.detail = absl::StrJoin(what, "; ");
  return reply;
}

void SchedulerCore::AnswerDrains(Instant now, Actions& actions) {
  std::erase_if(drain_watches_, [&](const DrainWatch& watch) {
    DrainReply reply = DrainState(watch.node);
    if (!reply.safe_to_stop && now < watch.until) return false;
    reply.ticket = watch.ticket;
    actions.drain_replies.push_back(std::move(reply));
    return true;
  });
}

}  // namespace capstan::scheduler
