// SchedulerCore: the consequences of a message. Slots are freed and taken, jobs start, held calls
// are answered.
#include <algorithm>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "common/planted/planted_bug.h"
#include "scheduler/core/scheduler_core.h"

namespace capstan::scheduler {

void SchedulerCore::Settle(Instant now, Actions& actions) {
  NoteEnded(now, actions);
  ReleaseSlots(actions);
  NoteLeft(actions);
  MoveTasks(now, actions);
  PlaceTasks(now, actions);
  StartJobs(now, actions);
  ExplainPending();
  RefreshRecords(now);
  RefreshDesired();
  NoteHistory(now, actions);
  AnswerChanged(actions);
  AnswerCheckpoints(actions);
  AnswerDrains(now, actions);
  NoteChanges(now, actions);
  due_ = std::min(due_, NextDeadline());
}

// ---------------------------------------------------------------- jobs and slots

std::vector<SchedulerCore::JobEntry*> SchedulerCore::Running() {
  std::vector<JobEntry*> entries;
  for (const auto& [number, job] : running_) entries.push_back(&jobs_.at(job));
  return entries;
}

void SchedulerCore::NoteEnded(Instant now, Actions& actions) {
  for (JobEntry* entry : Running()) {
    if (!entry->run->ended()) continue;
    running_.erase(entry->number);
    KeepEnded(*entry);
    leaving_.insert(entry->plan.id);
    changed_jobs_.insert(entry->plan.id);
    desired_changed_ = true;
  }
  ForgetOldest(now, actions);
}

// Removes the tasks that their jobs do not want any more from the desired states, and answers their
// calls.
void SchedulerCore::ReleaseSlots(Actions& actions) {
  bool changed = desired_changed_;
  for (JobEntry* entry : Running()) {
    if (entry->desired_version == entry->run->desired_version()) continue;
    entry->desired_version = entry->run->desired_version();
    changed = true;
  }
  if (!changed) return;
  desired_changed_ = true;
  const auto wanted = [this](const TaskKey& key) {
    const JobRun* run = RunOf(key.job);
    return run != nullptr && run->FindLife(key) != nullptr;
  };
  for (const auto& [id, state] : nodes_) {
    for (const TaskKey& key : slots_.Desired(id)) {
      if (wanted(key)) continue;
      slots_.Release(id, key);
      nodes_changed_ = true;
    }
  }
  std::vector<TaskKey> refused;
  for (const auto& [key, held] : held_tasks_) {
    if (!wanted(key)) refused.push_back(key);
  }
  for (const TaskKey& key : refused) RefuseTask(key, actions);
}

void SchedulerCore::NoteLeft(Actions& actions) {
  for (auto job = leaving_.begin(); job != leaving_.end();) {
    if (slots_.Runs(*job)) {
      ++job;
      continue;
    }
    actions.events.push_back(JobLeft{*job, RunOf(*job)->last_life()});
    job = leaving_.erase(job);
  }
}

std::optional<WorkerSlots::Place> SchedulerCore::ChoosePlace(const JobEntry& job) const {
  const auto place = slots_.Choose(job.plan.device, job.run->AvoidedWorkers());
  if (place || !job.run->PlacedTasks().empty()) return place;
  return slots_.Choose(job.plan.device);
}

// Places the tasks of running jobs, older jobs first. StartJobs() comes later, so running jobs come
// before waiting ones.
void SchedulerCore::PlaceTasks(Instant now, Actions& actions) {
  for (JobEntry* entry : Running()) {
    for (const Rank rank : entry->run->UnplacedRanks()) {
      const std::optional<WorkerSlots::Place> place = ChoosePlace(*entry);
      if (!place) break;  // A younger job may need less of a worker.
      const TaskKey key{entry->plan.id, rank, next_incarnation_};
      ++next_incarnation_;
      slots_.Take(*place, key);
      nodes_changed_ = true;
      entry->run->PlaceTask(rank, key.incarnation, place->node,
                            membership_.Find(place->node)->info.address, now, actions.events);
      desired_changed_ = true;
    }
  }
}

// Returns the supply for each device need of the waiting jobs.
Supplies SchedulerCore::CurrentSupplies() const {
  Supplies supplies;
  for (const DeviceNeed& need : queue_.Needs()) {
    Supply supply{.slots_free = slots_.free(need),
                  .slots = slots_.capacity(need),
                  .servers = static_cast<int>(membership_.Available(Role::kServer).size()),
                  .no_gpus = ""};
    if (need.kind == DeviceNeed::Kind::kGpu && supply.slots == 0) {
      supply.no_gpus = slots_.WhyNoGpus(need);
    }
    supplies.emplace_back(need, std::move(supply));
  }
  return supplies;
}

// A node that died while no scheduler ran is found dead only at the end of a lease. So jobs start
// when the live nodes have had the time to come back.
void SchedulerCore::StartJobs(Instant now, Actions& actions) {
  if (membership_.MayReturn(now)) return;
  while (const std::optional<JobId> job = queue_.Startable(CurrentSupplies())) {
    queue_.Remove(*job);
    queue_changed_ = true;
    StartJob(jobs_.at(*job), now, actions);
    PlaceTasks(now, actions);
  }
}

void SchedulerCore::StartJob(JobEntry& entry, Instant now, Actions& actions) {
  const JobPlan& plan = entry.plan;
  auto routing = std::make_shared<const Routing>(
      entry.restore
          ? PlaceRanges(plan.id, Generation(JobRun::kRestoreTerm.value()), entry.restore->shards,
                        ChooseServers(plan), plan.replicas)
          : PlaceShards(plan.id, Generation(1), plan.tables, ChooseServers(plan), plan.replicas));
  JobStarted started{plan.id, {}};
  for (const ServerRef& server : routing->servers) started.servers.push_back(server.node);
  actions.events.push_back(std::move(started));
  entry.run = std::make_unique<JobRun>(plan, std::move(routing), options_.job, now, entry.restore);
  running_.emplace(entry.number, plan.id);
  for (const Node* node : membership_.All()) {
    if (!node->alive || node->info.role != Role::kServer) continue;
    entry.run->OnServerJoined({node->id, node->info.address, node->incarnation}, {},
                              node->closing(), now, actions.events);
  }
  desired_changed_ = true;
}

// Returns as many servers as the plan asks for (0: all), namely those with the fewest shards,
// sorted by name.
std::vector<ServerRef> SchedulerCore::ChooseServers(const JobPlan& plan) const {
  std::vector<const Node*> servers = membership_.Available(Role::kServer);
  if (plan.servers > 0) {
    std::stable_sort(servers.begin(), servers.end(), [this](const Node* a, const Node* b) {
      return ShardsOn(a->id) < ShardsOn(b->id);
    });
    servers.resize(static_cast<size_t>(plan.servers_needed()));
    std::sort(servers.begin(), servers.end(),
              [](const Node* a, const Node* b) { return a->id < b->id; });
  }
  std::vector<ServerRef> chosen;
  for (const Node* node : servers)
    chosen.push_back({node->id, node->info.address, node->incarnation});
  return chosen;
}

int SchedulerCore::ShardsOn(const NodeId& node) const {
  int count = 0;
  for (const auto& [number, job] : running_) count += RunOf(job)->shards().CopiesOn(node);
  return count;
}

void SchedulerCore::ExplainPending() {
  const Supplies supplies = CurrentSupplies();
  if (supplies == explained_supplies_ && !queue_changed_) return;
  explained_supplies_ = supplies;
  queue_changed_ = false;
  for (const JobId& job : queue_.Jobs()) {
    JobEntry& entry = jobs_.at(job);
    std::string why = queue_.WhyWaiting(job, supplies);
    if (why == entry.why_pending) continue;
    entry.why_pending = std::move(why);
    ++entry.told_revision;
  }
}

// ---------------------------------------------------------------- nodes

// Applies the consequences of the NodeDied events from `first_event` on.
void SchedulerCore::TakeNodeDeaths(size_t first_event, Instant now, Actions& actions) {
  std::vector<JobRun::DeadNode> dead;
  const size_t end = actions.events.size();
  for (size_t i = first_event; i < end; ++i) {
    const NodeDied* found = std::get_if<NodeDied>(&actions.events[i]);
    if (found == nullptr) continue;
    const NodeDied& died = *found;
    if (const auto it = nodes_.find(died.node); it != nodes_.end()) {
      if (it->second.held) {
        NodeReply reply{.ticket = it->second.ticket};
        reply.status = absl::AbortedError(absl::StrCat(
            died.node, ": incarnation ", died.incarnation.value(), " is dead: ", died.why));
        actions.node_replies.push_back(std::move(reply));
      }
      nodes_.erase(it);
    }
    slots_.RemoveNode(died.node);
    nodes_changed_ = true;
    dead.push_back({died.node, died.why, died.last_seen + options_.read_lease});
  }
  if (dead.empty()) return;
  for (JobEntry* entry : Running()) entry->run->OnNodesDied(dead, now, actions.events);
}

SchedulerCore::Desired SchedulerCore::WantedOf(const Node& node) const {
  Desired wanted;
  if (node.info.role == Role::kWorker) {
    wanted.tasks = slots_.Desired(node.id);
    return wanted;
  }
  for (const auto& [number, job] : running_) {
    const JobRun& run = *RunOf(job);
    if (!run.UsesServer(node.id)) continue;
    wanted.tables.push_back({job, run.routing()->generation, run.membership().generation,
                             run.checkpoint_order().id, jobs_.at(job).record});
  }
  return wanted;
}

// The progress of a BSP job is the version of its tables, so only decisions change its record. A
// new routing table changes the record at once, because no push may be acknowledged under a table
// that the record does not have.
void SchedulerCore::RefreshRecords(Instant now) {
  if (options_.record_interval == absl::InfiniteDuration()) return;
  for (JobEntry* entry : Running()) {
    if (!entry->plan.log) continue;
    const JobRun& run = *entry->run;
    const Routing& routing = *run.routing();
    const uint64_t state =
        entry->plan.consistency.synchronous() ? run.durable_version() : run.revision();
    const absl::Duration interval =
        options_.record_interval + kRecordIntervalPerShard * routing.shards.size();
    const bool due = state != entry->record && now >= entry->record_at + interval;
    if (!due && entry->record_routing == routing.generation) continue;
    entry->record = state;
    entry->record_routing = routing.generation;
    entry->record_at = now;
    desired_changed_ = true;
  }
}

void SchedulerCore::RefreshDesired() {
  for (JobEntry* entry : Running()) {
    if (entry->desired_version == entry->run->desired_version()) continue;
    entry->desired_version = entry->run->desired_version();
    desired_changed_ = true;
  }
  if (!desired_changed_) return;
  desired_changed_ = false;
  for (auto& [id, state] : nodes_) {
    Desired wanted = WantedOf(*membership_.Find(id));
    if (wanted == state.desired) continue;
    state.desired = std::move(wanted);
    ++state.generation;
    nodes_changed_ = true;
  }
}

// ---------------------------------------------------------------- durable state

void SchedulerCore::NoteChanges(Instant now, Actions& actions) {
  Changes& changes = actions.changes;
  if (std::exchange(nodes_changed_, false)) changes.nodes = true;
  for (const JobId& job : std::exchange(changed_jobs_, {})) changes.jobs.insert(job);
  for (JobEntry* entry : Running()) {
    const JobRun& run = *entry->run;
    if (entry->written_routing != run.routing()->generation) {
      entry->written_routing = run.routing()->generation;
      changes.routings.insert(entry->plan.id);
    }
    const bool decided = entry->written_version != run.durable_version();
    const bool progressed = entry->written_revision != run.revision() &&
                            now - entry->written_at >= options_.progress_interval;
    if (!decided && !progressed) continue;
    entry->written_version = run.durable_version();
    entry->written_revision = run.revision();
    entry->written_at = now;
    changes.jobs.insert(entry->plan.id);
  }
  if (!changes.empty()) revisions_.Advance();
  for (NodeReply& reply : actions.node_replies) reply.revision = revisions_.current();
  for (TaskReply& reply : actions.task_replies) reply.revision = revisions_.current();
}

void SchedulerCore::Restored(Instant now, Actions& actions) {
  membership_.Restored(now, options_.rejoin);
  for (const Node* node : membership_.All()) {
    if (node->alive && node->info.role == Role::kWorker) slots_.CloseNode(node->id);
  }
  revisions_.Begin();
  // A store that was restored from a backup does not have the latest incarnations and memberships.
  next_incarnation_ = std::max(next_incarnation_, options_.first_incarnation);
  if (Planted(PlantedBug::kReuseIncarnations)) next_incarnation_ = options_.first_incarnation;
  absl::btree_map<uint64_t, JobEntry*> waiting;
  for (auto& [id, entry] : jobs_) {
    const bool ended = entry.run == nullptr ? entry.stopped : entry.run->ended();
    // Users saw fewer than this many revisions (reasons to wait) that were not stored.
    if (entry.run == nullptr && !ended) {
      entry.told_revision += uint64_t{1} << 32;
      changed_jobs_.insert(id);  // The next incarnation adds to this one's revision.
    }
    if (entry.run != nullptr) {
      entry.run->Restored(now, options_.rejoin, Generation(options_.first_incarnation.value()));
    }
    if (ended) {
      KeepEnded(entry);
      if (entry.run != nullptr) leaving_.insert(id);  // The last incarnation may have missed it.
    } else if (entry.run == nullptr) {
      waiting.emplace(entry.number, &entry);
    } else {
      running_.emplace(entry.number, id);
    }
  }
  for (const auto& [number, entry] : waiting) {
    const JobPlan& plan = entry->plan;
    queue_.Push(plan.id, plan.workers, plan.servers_needed(), plan.device).IgnoreError();
  }
  queue_changed_ = true;
  desired_changed_ = true;
  for (JobEntry* entry : Running()) entry->run->Tick(now, actions.events);
  Settle(now, actions);
}

// ---------------------------------------------------------------- answers

void SchedulerCore::AnswerNode(const NodeId& id, NodeState& state, Actions& actions) {
  NodeReply reply{
      .ticket = state.ticket, .status = absl::OkStatus(), .generation = state.generation};
  reply.revision = revisions_.current();
  state.held = false;
  reply.changed = state.seen != state.generation;
  reply.may_stop = MayStop(id);
  if (reply.changed) {
    for (const auto& [job, routing, membership, checkpoint, record] : state.desired.tables) {
      const JobRun& run = *RunOf(job);
      reply.tables.push_back(
          {run.routing(), run.membership(), run.restore_source(), run.checkpoint_order(), record});
    }
    reply.tasks = state.desired.tasks;
    for (const TaskKey& task : reply.tasks) {
      std::vector<int> gpus = slots_.GpusOf(id, task);
      if (!gpus.empty()) reply.gpus.push_back({task, std::move(gpus)});
    }
  }
  actions.node_replies.push_back(std::move(reply));
}

void SchedulerCore::AnswerTask(const TaskKey& key, Actions& actions) {
  const auto it = held_tasks_.find(key);
  if (it == held_tasks_.end()) return;
  const HeldTask held = it->second;
  held_tasks_.erase(it);
  TaskReply reply{.ticket = held.ticket, .status = absl::OkStatus(), .job = key.job};
  reply.lease = options_.lease;
  reply.sync_interval = options_.sync_interval;
  reply.revision = revisions_.current();
  const JobRun* run = RunOf(key.job);
  const Task* task = run == nullptr ? nullptr : run->FindLife(key);
  if (task != nullptr) {
    reply.has_assignment = task->assignment.generation > held.assignment_seen;
    if (reply.has_assignment) reply.assignment = task->assignment;
    if (run->routing()->generation > held.routing_seen) reply.routing = run->routing();
    reply.first_routing = held.routing_seen == Generation(0);
  }
  actions.task_replies.push_back(std::move(reply));
}

void SchedulerCore::RefuseTask(const TaskKey& key, Actions& actions) {
  const auto it = held_tasks_.find(key);
  TaskReply reply{.ticket = it->second.ticket, .status = absl::OkStatus(), .job = key.job};
  held_tasks_.erase(it);
  reply.status =
      absl::AbortedError(absl::StrCat(key.job, " task ", key.rank.value(), ": incarnation ",
                                      key.incarnation.value(), " is not wanted any more"));
  actions.task_replies.push_back(std::move(reply));
}

void SchedulerCore::AnswerChanged(Actions& actions) {
  for (auto& [id, state] : nodes_) {
    if (state.held && state.seen != state.generation) AnswerNode(id, state, actions);
  }
  for (JobEntry* entry : Running()) {
    for (const Rank rank : entry->run->TakeChangedAssignments()) {
      AnswerTask({entry->plan.id, rank, entry->run->task(rank).incarnation}, actions);
    }
  }
  std::erase_if(watches_, [this, &actions](const Watch& watch) {
    if (RevisionOf(jobs_.at(watch.job)) <= watch.after_revision) return false;
    actions.job_replies.push_back({watch.ticket, watch.job});
    return true;
  });
}

void SchedulerCore::AnswerCheckpoints(Actions& actions) {
  for (JobEntry* entry : Running()) {
    if (auto publish = entry->run->TakePublish()) actions.publishes.push_back(*std::move(publish));
    if (auto model = entry->run->TakeModelPublish()) actions.models.push_back(*std::move(model));
  }
  for (const Event& event : actions.events) {
    if (const auto* ended = std::get_if<CheckpointEnded>(&event)) AnswerMoment(*ended, actions);
    if (const auto* taken = std::get_if<SnapshotTaken>(&event)) AnswerMoment(*taken, actions);
  }
  std::erase_if(checkpoint_waits_, [&](const CheckpointWait& wait) {
    const JobRun* run = RunOf(wait.job);
    if (run != nullptr && !run->ended()) return false;
    const absl::string_view what = wait.snapshot ? "snapshot" : "checkpoint";
    AnswerWithout(wait,
                  absl::FailedPreconditionError(
                      absl::StrCat(wait.job, " ended before the ", what, " was begun")),
                  actions);
    return true;
  });
}

void SchedulerCore::AnswerMoment(const CheckpointEnded& ended, Actions& actions) {
  const absl::Status status =
      ended.why.empty()
          ? absl::OkStatus()
          : absl::FailedPreconditionError(absl::StrCat("checkpoint ", ended.id.value(), " of ",
                                                       ended.job, " was given up: ", ended.why));
  std::erase_if(checkpoint_waits_, [&](const CheckpointWait& wait) {
    if (wait.snapshot || wait.job != ended.job || wait.id > ended.id) return false;
    actions.checkpoint_replies.push_back({wait.ticket, status, ended.id, ended.folder, wait.id});
    return true;
  });
}

void SchedulerCore::AnswerMoment(const SnapshotTaken& taken, Actions& actions) {
  const absl::Status status = taken.why.empty()
                                  ? absl::OkStatus()
                                  : absl::FailedPreconditionError(absl::StrCat(
                                        "no snapshot of ", taken.job, ": ", taken.why));
  std::erase_if(checkpoint_waits_, [&](const CheckpointWait& wait) {
    if (!wait.snapshot || wait.job != taken.job || wait.id > taken.id) return false;
    actions.snapshot_replies.push_back({.ticket = wait.ticket,
                                        .status = status,
                                        .job = taken.job,
                                        .id = taken.id,
                                        .iteration = taken.iteration,
                                        .routing = RunOf(taken.job)->routing()});
    return true;
  });
}

// Answers a wait without a result: with an error, or OK if the time limit is over.
void SchedulerCore::AnswerWithout(const CheckpointWait& wait, const absl::Status& why,
                                  Actions& actions) {
  if (wait.snapshot) {
    actions.snapshot_replies.push_back({.ticket = wait.ticket, .status = why, .job = wait.job});
  } else {
    actions.checkpoint_replies.push_back({wait.ticket, why, CheckpointId(0), "", wait.id});
  }
}

void SchedulerCore::AnswerExpired(Instant now, Actions& actions) {
  std::erase_if(checkpoint_waits_, [now, &actions](const CheckpointWait& wait) {
    if (now < wait.until) return false;
    AnswerWithout(wait, absl::OkStatus(), actions);
    return true;
  });
  for (auto& [id, state] : nodes_) {
    if (state.held && now >= state.hold_until) AnswerNode(id, state, actions);
  }
  std::vector<TaskKey> expired;
  for (const auto& [key, held] : held_tasks_) {
    if (now >= held.hold_until) expired.push_back(key);
  }
  for (const TaskKey& key : expired) AnswerTask(key, actions);
  std::erase_if(watches_, [now, &actions](const Watch& watch) {
    if (now < watch.until) return false;
    actions.job_replies.push_back({watch.ticket, watch.job});
    return true;
  });
}

}  // namespace capstan::scheduler
