// SchedulerCore: messages and views. scheduler_core_settle.cc has the consequences of messages;
// scheduler_core_nodes.cc has broken connections and drains.
#include "scheduler/core/scheduler_core.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"

namespace capstan::scheduler {
namespace {

SchedulerCore::Options Complete(SchedulerCore::Options options) {
  options.job.tasks.lease = options.lease;
  options.broken_limit = std::max(options.broken_limit, options.read_lease);
  return options;
}

absl::Status NoSuchJob(const JobId& job) {
  return absl::NotFoundError(absl::StrCat("there is no job \"", job, "\""));
}

}  // namespace

SchedulerCore::SchedulerCore(const Options& options)
    : options_(Complete(options)),
      next_incarnation_(options.first_incarnation),
      revisions_(options.number),
      membership_({.lease = options_.lease,
                   .broken_limit = options_.broken_limit,
                   .silence = options_.broken_limit,
                   .rejoin = options_.rejoin}) {}

// ---------------------------------------------------------------- daemons

absl::StatusOr<Registration> SchedulerCore::Register(const NodeInfo& info, Instant now,
                                                     Actions& actions) {
  const size_t first_event = actions.events.size();
  CAPSTAN_ASSIGN_OR_RETURN(const NodeId id,
                           membership_.Register(info, next_incarnation_, now, actions.events));
  const Incarnation incarnation = next_incarnation_;
  ++next_incarnation_;
  TakeNodeDeaths(first_event, now, actions);
  nodes_[id] = NodeState{.generation = Generation(1), .desired = {}};
  const Node& node = *membership_.Find(id);
  if (info.role == Role::kWorker) {
    slots_.AddNode(id, info.task_capacity, info.devices);
    if (node.closing()) slots_.CloseNode(id);
  } else {
    EndForLaterLogs(id, info.stored, now, actions.events);
    for (JobEntry* entry : Running()) {
      entry->run->OnServerJoined({id, info.address, incarnation}, info.stored, node.closing(), now,
                                 actions.events);
    }
  }
  desired_changed_ = true;
  nodes_changed_ = true;
  Settle(now, actions);
  Registration registration{.node = id,
                            .incarnation = incarnation,
                            .lease = options_.lease,
                            .sync_interval = options_.sync_interval,
                            .read_lease = options_.read_lease};
  if (info.role == Role::kServer) registration.living_logs = LivingLogs();
  return registration;
}

std::vector<std::string> SchedulerCore::LivingLogs() const {
  std::vector<std::string> living;
  for (const auto& [id, entry] : jobs_) {
    if (entry.plan.log && !ended_.contains(entry.number)) living.push_back(entry.plan.unique_id);
  }
  return living;
}

absl::Status SchedulerCore::SyncNode(Ticket ticket, const NodeReport& report, Instant now,
                                     Actions& actions) {
  const Node* before = membership_.Find(report.node);
  const bool was_closing = before != nullptr && before->closing();
  const bool was_heard = before != nullptr && before->heard;
  if (!revisions_.Has(report.revision_seen)) OnOlderStore(report, now, actions);
  CAPSTAN_RETURN_IF_ERROR(membership_.Renew(report.node, report.incarnation, report.leaving, now));
  const Node& node = *membership_.Find(report.node);
  NodeState& state = nodes_[report.node];
  if (state.held) AnswerNode(node.id, state, actions);  // The node gave up its earlier call.
  if (node.closing() && !was_closing) NoteClosing(node, now, actions);
  if (!was_heard && node.info.role == Role::kWorker && !node.closing()) slots_.OpenNode(node.id);
  const bool current = report.generation_seen == state.generation;
  TakeNodeReport(node, report, current, now, actions);
  ReleaseSlots(actions);
  slots_.Report(report.node, report.tasks, current);
  state.held = true;
  state.ticket = ticket;
  state.seen = report.generation_seen;
  state.hold_until = now + options_.sync_interval;
  Settle(now, actions);
  if (state.held && state.seen != state.generation) AnswerNode(node.id, state, actions);
  return absl::OkStatus();
}

void SchedulerCore::TakeNodeReport(const Node& node, const NodeReport& report, bool current,
                                   Instant now, Actions& actions) {
  for (const TableReport& table : report.tables) {
    JobRun* run = RunOf(table.job);
    // A failure under an older desired state does not count; a later sync reports it if it lasts.
    if (run == nullptr || (table.failure.happened() && !current)) continue;
    run->OnTableReport(node.id, table, now, actions.events);
  }
  for (const TaskState& state : report.tasks) {
    JobRun* run = state.exited ? RunOf(state.task.job) : nullptr;
    const Task* task = run == nullptr ? nullptr : run->FindLife(state.task);
    if (task == nullptr || task->node != node.id) continue;
    run->OnTaskExited(state.task, state.exit, node.leaving, now, actions.events);
  }
}

// ---------------------------------------------------------------- tasks

absl::Status SchedulerCore::SyncTask(Ticket ticket, const TaskReport& report, Instant now,
                                     Actions& actions) {
  const auto entry = jobs_.find(report.task.job);
  if (entry != jobs_.end() && !revisions_.Has(report.revision_seen)) {
    EndForOlderStore(entry->second, absl::StrCat("task ", report.task.rank.value()), now,
                     actions.events);
    Settle(now, actions);
  }
  JobRun* run = RunOf(report.task.job);
  if (run == nullptr) return NoSuchJob(report.task.job);
  const Task* reporter = run->FindLife(report.task);
  const NodeId node = reporter == nullptr ? NodeId() : reporter->node;
  CAPSTAN_RETURN_IF_ERROR(run->OnTaskReport(report, now, actions.events));
  if (report.failure.reason == FailureReason::kDeviceLost) {
    slots_.LoseGpus(node, report.task, report.gpus_lost);
    nodes_changed_ = true;
  }
  AnswerTask(report.task, actions);  // The task gave up an earlier call that is still held.
  held_tasks_[report.task] = {.ticket = ticket,
                              .assignment_seen = report.assignment_seen,
                              .routing_seen = report.routing_seen,
                              .hold_until = now + options_.sync_interval};
  // The core has accepted a failure, which may have ended the job or the task. It answers OK now,
  // because Settle() would refuse the task.
  if (run->ended() || report.failure.happened()) AnswerTask(report.task, actions);
  Settle(now, actions);
  const Task* task = run->FindLife(report.task);
  const bool hold = task != nullptr && task->idle && !run->HasUnfinishedWork(*task) &&
                    report.assignment_seen == task->assignment.generation &&
                    report.routing_seen == run->routing()->generation;
  if (!hold) AnswerTask(report.task, actions);
  return absl::OkStatus();
}

// ---------------------------------------------------------------- users

// Waiting jobs count, too, because a job cannot be refused any more when it starts.
absl::Status SchedulerCore::CheckFolders(const JobFolders& folders, Instant now,
                                         const JobId& owner) const {
  for (const auto& [id, entry] : jobs_) {
    if (ended_.contains(entry.number) || id == owner) continue;
    const std::string clash = WhyFoldersClash(folders, id, entry.plan.folders);
    if (clash.empty()) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        clash, ", which is ", entry.run == nullptr ? "PENDING" : "RUNNING", " (",
        ViewOf(entry, now).detail, "); wait until it has ended, stop it, or name another folder"));
  }
  return absl::OkStatus();
}

// Servers may still write a checkpoint of an ended job after the folder was listed, so the ids of
// begun checkpoints count, too.
CheckpointId SchedulerCore::FloorIn(const JobFolders& folders, CheckpointId floor) const {
  if (folders.checkpoints.empty()) return floor;
  for (const auto& [id, entry] : jobs_) {
    if (entry.run == nullptr || entry.plan.folders.checkpoints != folders.checkpoints) continue;
    floor = std::max(floor, entry.run->checkpoints().last_begun());
  }
  return floor;
}

absl::Status SchedulerCore::SubmitJob(const JobPlan& plan, Instant now, Actions& actions,
                                      const std::optional<RestoreFrom>& restore) {
  CAPSTAN_RETURN_IF_ERROR(CheckFolders(plan.folders, now));
  CAPSTAN_RETURN_IF_ERROR(queue_.Push(plan.id, plan.workers, plan.servers_needed(), plan.device));
  const CheckpointId floor = FloorIn(plan.folders, plan.checkpoint_floor);
  JobEntry& entry = jobs_[plan.id];
  entry.plan = plan;
  entry.plan.checkpoint_floor = floor;
  entry.number = next_job_number_++;
  entry.submitted = now;
  entry.restore = restore;
  // The shards store the incarnations of the tasks that trained them, perhaps in another cluster.
  if (restore) next_incarnation_ = std::max(next_incarnation_, restore->at.incarnation.Next());
  actions.events.push_back(JobSubmitted{plan.id});
  queue_changed_ = true;
  nodes_changed_ = true;  // That row has the counters.
  changed_jobs_.insert(plan.id);
  Settle(now, actions);
  return absl::OkStatus();
}

const JobId* SchedulerCore::JobOfSubmission(uint64_t submission_id) const {
  if (submission_id == 0) return nullptr;
  for (const auto& [id, entry] : jobs_) {
    if (entry.plan.submission_id == submission_id) return &id;
  }
  return nullptr;
}

std::string SchedulerCore::WhyTooSmall(const JobId& job, Instant now) const {
  if (membership_.MayReturn(now)) return "";
  return queue_.WhyTooSmall(job, CurrentSupplies());
}

absl::StatusOr<JobState> SchedulerCore::StopJob(const JobId& job, Instant now, Actions& actions) {
  const auto it = jobs_.find(job);
  if (it == jobs_.end()) return NoSuchJob(job);
  JobEntry& entry = it->second;
  if (entry.run != nullptr) {
    entry.run->Stop(now, actions.events);
  } else if (!entry.stopped) {
    EndUnstarted(entry, {}, now, actions.events);
  }
  const JobState state = entry.run == nullptr ? entry.unstarted_state() : entry.run->state();
  Settle(now, actions);
  return state;
}

absl::StatusOr<CheckpointId> SchedulerCore::SaveAndStopJob(const JobId& job, Instant now,
                                                           Actions& actions) {
  CAPSTAN_ASSIGN_OR_RETURN(JobRun* const run, MayWaitForMoment(job));
  CAPSTAN_ASSIGN_OR_RETURN(const CheckpointId id, run->SaveAndStop(now, actions.events));
  Settle(now, actions);
  return id;
}

absl::Status SchedulerCore::WatchJob(Ticket ticket, const JobId& job, uint64_t after_revision,
                                     absl::Duration limit, Instant now, Actions& actions) {
  const auto it = jobs_.find(job);
  if (it == jobs_.end()) return NoSuchJob(job);
  const bool ended = ended_.contains(it->second.number);
  if (RevisionOf(it->second) > after_revision || limit <= absl::ZeroDuration() || ended) {
    actions.job_replies.push_back({ticket, job});
    return absl::OkStatus();
  }
  if (watches_.size() >= options_.watches_max) {
    return absl::ResourceExhaustedError(absl::StrCat(
        watches_.size(), " calls wait for news of jobs already; ask again without a wait"));
  }
  watches_.push_back({ticket, job, after_revision, now + limit});
  return absl::OkStatus();
}

// ---------------------------------------------------------------- checkpoints

absl::StatusOr<JobRun*> SchedulerCore::MayWaitForMoment(const JobId& job) {
  const auto it = jobs_.find(job);
  if (it == jobs_.end()) return NoSuchJob(job);
  JobRun* run = it->second.run.get();
  if (run == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(job, " has not started"));
  }
  if (checkpoint_waits_.size() >= options_.watches_max) {
    return absl::ResourceExhaustedError(
        absl::StrCat(checkpoint_waits_.size(), " calls wait for checkpoints already"));
  }
  return run;
}

absl::Status SchedulerCore::SaveCheckpoint(Ticket ticket, const JobId& job, absl::Duration limit,
                                           Instant now, Actions& actions) {
  CAPSTAN_ASSIGN_OR_RETURN(JobRun* const run, MayWaitForMoment(job));
  CAPSTAN_ASSIGN_OR_RETURN(const CheckpointId id, run->AskCheckpoint(now, actions.events));
  HoldForCheckpoint(ticket, job, id, limit, now, actions);
  return absl::OkStatus();
}

absl::Status SchedulerCore::AwaitCheckpoint(Ticket ticket, const JobId& job, CheckpointId asked,
                                            absl::Duration limit, Instant now, Actions& actions) {
  CAPSTAN_ASSIGN_OR_RETURN(const JobRun* const run, MayWaitForMoment(job));
  CAPSTAN_ASSIGN_OR_RETURN(const RestoreFrom* const complete, run->checkpoints().Find(asked));
  if (complete != nullptr) {
    actions.checkpoint_replies.push_back(
        {ticket, absl::OkStatus(), complete->id, complete->folder, asked});
    return absl::OkStatus();
  }
  HoldForCheckpoint(ticket, job, asked, limit, now, actions);
  return absl::OkStatus();
}

void SchedulerCore::HoldForCheckpoint(Ticket ticket, const JobId& job, CheckpointId asked,
                                      absl::Duration limit, Instant now, Actions& actions) {
  checkpoint_waits_.push_back({ticket, job, asked, now + limit});
  Settle(now, actions);
  if (limit <= absl::ZeroDuration()) AnswerExpired(now, actions);
}

absl::Status SchedulerCore::OpenSnapshot(Ticket ticket, const JobId& job, uint64_t reader,
                                         absl::Duration limit, Instant now, Actions& actions) {
  CAPSTAN_ASSIGN_OR_RETURN(JobRun* const run, MayWaitForMoment(job));
  CAPSTAN_ASSIGN_OR_RETURN(const CheckpointId id, run->AskSnapshot(reader, now, actions.events));
  checkpoint_waits_.push_back({ticket, job, id, now + limit, /*snapshot=*/true});
  Settle(now, actions);
  if (limit <= absl::ZeroDuration()) AnswerExpired(now, actions);
  return absl::OkStatus();
}

void SchedulerCore::CheckpointPublished(const JobId& job, CheckpointId id,
                                        const absl::Status& status, Instant now, Actions& actions) {
  if (JobRun* run = RunOf(job)) {
    run->OnCheckpointPublished(id, status, now, actions.events);
    if (status.ok()) actions.removals.push_back(job);
  }
  Settle(now, actions);
}

CheckpointRemoval SchedulerCore::CheckpointsToRemove(const JobId& job) const {
  const JobRun* run = RunOf(job);
  if (run == nullptr) return {};
  CheckpointRemoval removal = run->checkpoints().Removal();
  for (const auto& [id, entry] : jobs_) {
    if (!entry.restore || ended_.contains(entry.number)) continue;
    if (entry.restore->pinned_in != run->plan().folders.checkpoints) continue;
    removal.pinned.emplace_back(entry.restore->rests_on, entry.restore->id);
  }
  return removal;
}

void SchedulerCore::ModelPublished(const TaskKey& exporter, const absl::Status& status, Instant now,
                                   Actions& actions) {
  if (JobRun* run = RunOf(exporter.job))
    run->OnModelPublished(exporter, status, now, actions.events);
  Settle(now, actions);
}

bool SchedulerCore::AwaitsModel(const TaskKey& exporter) const {
  const JobRun* run = RunOf(exporter.job);
  return run != nullptr && run->AwaitsModel(exporter);
}

absl::Status SchedulerCore::ExportJob(const JobId& job, const std::string& folder,
                                      const std::string& one_name, Instant now, Actions& actions) {
  if (!jobs_.contains(job)) return absl::NotFoundError(absl::StrCat("no job \"", job, "\""));
  JobRun* run = RunOf(job);
  if (run == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(job, " has no model: it has not started"));
  }
  if (!folder.empty()) CAPSTAN_RETURN_IF_ERROR(CheckFolders({.output = one_name}, now, job));
  CAPSTAN_RETURN_IF_ERROR(run->AskExport(folder, now, actions.events));
  Settle(now, actions);
  return absl::OkStatus();
}

bool SchedulerCore::MayWriteInto(const std::string& folder) const {
  return std::any_of(running_.begin(), running_.end(),
                     [&](const auto& entry) { return RunOf(entry.second)->WritesInto(folder); });
}

bool SchedulerCore::MayReadFrom(const std::string& folder) const {
  return std::any_of(running_.begin(), running_.end(),
                     [&](const auto& entry) { return RunOf(entry.second)->MayGoBackTo(folder); });
}

// ---------------------------------------------------------------- time

void SchedulerCore::Tick(Instant now, Actions& actions) {
  NoteStall(now, actions);
  const size_t first_event = actions.events.size();
  membership_.Tick(now, actions.events);
  TakeNodeDeaths(first_event, now, actions);
  for (JobEntry* entry : Running()) {
    JobRun& run = *entry->run;
    // Limits of time do not run while no report can arrive.
    if (membership_.isolated()) run.RestartLimits(now, options_.rejoin);
    for (const Rank rank : run.ExpiredTasks(now)) {
      // If the daemon is silent, too, its tasks die when the daemon's lease ends. If this scheduler
      // is isolated, no node dies.
      const Node* node = membership_.Find(run.task(rank).node);
      if (node != nullptr && node->alive && now - node->last_seen >= options_.lease / 2) {
        run.ExcuseTask(rank, now);
      } else {
        run.OnTaskExpired(rank, now, actions.events);
      }
    }
    run.Tick(now, actions.events);
  }
  Settle(now, actions);
  AnswerExpired(now, actions);
  due_ = NextDeadline();
}

Instant SchedulerCore::NextDeadline() const {
  Instant next = membership_.NextDeadline();
  for (const auto& [id, state] : nodes_) {
    if (state.held) next = std::min(next, state.hold_until);
  }
  for (const auto& [key, held] : held_tasks_) next = std::min(next, held.hold_until);
  for (const Watch& watch : watches_) next = std::min(next, watch.until);
  for (const CheckpointWait& wait : checkpoint_waits_) next = std::min(next, wait.until);
  for (const DrainWatch& watch : drain_watches_) next = std::min(next, watch.until);
  for (const auto& [number, job] : running_) next = std::min(next, RunOf(job)->NextDeadline());
  if (!ended_by_time_.empty()) {
    next = std::min(next, ended_by_time_.begin()->first + options_.ended_jobs_age);
  }
  return next;
}

// ---------------------------------------------------------------- views

const JobRun* SchedulerCore::RunOf(const JobId& job) const {
  const auto it = jobs_.find(job);
  return it == jobs_.end() ? nullptr : it->second.run.get();
}

JobRun* SchedulerCore::RunOf(const JobId& job) {
  const auto it = jobs_.find(job);
  return it == jobs_.end() ? nullptr : it->second.run.get();
}

uint64_t SchedulerCore::RevisionOf(const JobEntry& entry) const {
  return entry.told_revision + (entry.run == nullptr ? 0 : entry.run->revision());
}

JobView SchedulerCore::ViewOf(const JobEntry& entry, Instant now) const {
  JobView view;
  if (entry.run != nullptr) {
    view = entry.run->View(now);
    for (TaskView& task : view.tasks) {
      task.gpus = slots_.GpusOf(task.node, {view.id, task.rank, task.incarnation});
    }
  } else {
    view.id = entry.plan.id;
    view.state = entry.unstarted_state();
    view.failure = entry.failure;
    view.detail = entry.stopped ? "stopped before it started" : entry.why_pending;
    if (entry.stopped) view.ended = entry.stopped_at;
    view.samples_total = EpochPlan(entry.plan).samples_total();
  }
  view.submitted = entry.submitted;
  view.revision = RevisionOf(entry);
  view.events = entry.history.events();
  view.events_forgotten = entry.history.forgotten();
  return view;
}

absl::StatusOr<JobView> SchedulerCore::Job(const JobId& job, Instant now) const {
  const auto it = jobs_.find(job);
  if (it == jobs_.end()) return NoSuchJob(job);
  return ViewOf(it->second, now);
}

std::vector<JobView> SchedulerCore::Jobs(Instant now) const {
  std::vector<const JobEntry*> entries;
  for (const auto& [id, entry] : jobs_) entries.push_back(&entry);
  std::sort(entries.begin(), entries.end(),
            [](const JobEntry* a, const JobEntry* b) { return a->number < b->number; });
  std::vector<JobView> views;
  for (const JobEntry* entry : entries) views.push_back(ViewOf(*entry, now));
  return views;
}

std::vector<NodeView> SchedulerCore::Nodes() const {
  std::vector<NodeView> views;
  for (const Node* node : membership_.All()) {
    views.push_back({.id = node->id,
                     .info = node->info,
                     .incarnation = node->incarnation,
                     .alive = node->alive,
                     .draining = node->closing(),
                     .last_seen = node->last_seen,
                     .tasks = slots_.Taken(node->id),
                     .shards = ShardsOn(node->id),
                     .gpus_taken = slots_.GpusTaken(node->id),
                     .gpus_lost = slots_.GpusLost(node->id)});
  }
  return views;
}

absl::StatusOr<std::shared_ptr<const Routing>> SchedulerCore::RoutingOf(const JobId& job) const {
  const auto it = jobs_.find(job);
  if (it == jobs_.end()) return NoSuchJob(job);
  if (it->second.run == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat(job, " has no servers: it ",
                     it->second.stopped ? "was stopped before it started" : "has not started yet"));
  }
  return it->second.run->routing();
}

}  // namespace capstan::scheduler
