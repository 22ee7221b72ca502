// SchedulerCore: messages and views. scheduler_core_settle.cc has the consequences of messages;
// scheduler_core_nodes.cc has broken connections and drains.
#include "scheduler/core/scheduler_core.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "scheduler/core/messages/plugin_rules.h"

namespace capstan::scheduler {
namespace {

SchedulerCore::Options Complete(SchedulerCore::Options options) {
  options.job.tasks.lease = options.lease;
  options.broken_limit = std::max(options.broken_limit, options.read_lease);
  return options;
}

}  // namespace

SchedulerCore::SchedulerCore(const Options& options)
    : options_(Complete(options)),
      incarnations_{options.first_incarnation},
      revisions_(options.number),
      membership_({.lease = options_.lease,
                   .broken_limit = options_.broken_limit,
                   .silence = options_.broken_limit,
                   .rejoin = options_.rejoin}),
      placer_(options_.job, &jobs_, &membership_, &incarnations_),
      desired_({.lease = options_.lease,
                .sync_interval = options_.sync_interval,
                .record_interval = options_.record_interval},
               &jobs_, &membership_, &placer_.slots(), &revisions_),
      waiting_(options_.held_calls_max) {}

// ---------------------------------------------------------------- daemons

absl::StatusOr<Registration> SchedulerCore::Register(const NodeInfo& info, Instant now,
                                                     Actions& actions) {
  const size_t first_event = actions.events.size();
  CAPSTAN_ASSIGN_OR_RETURN(const NodeId id,
                           membership_.Register(info, incarnations_.next, now, actions.events));
  const Incarnation incarnation = incarnations_.Take();
  TakeNodeDeaths(first_event, now, actions);
  desired_.AddNode(id);
  const Node& node = *membership_.Find(id);
  if (info.role == Role::kWorker) {
    placer_.slots().AddNode(id, info.task_capacity, info.devices);
    if (node.closing()) placer_.slots().CloseNode(id);
  } else {
    EndForLaterLogs(id, info.stored, now, actions.events);
    for (JobEntry* entry : jobs_.Running()) JoinServer(node, info, *entry, now, actions.events);
  }
  desired_.NoteChanged();
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

void SchedulerCore::JoinServer(const Node& node, const NodeInfo& info, const JobEntry& job,
                               Instant now, Events& events) {
  const std::vector<PluginRule>& needed = job.plan.plugin_rules;
  if (HasRules(info.plugin_rules, needed)) {
    return job.run->OnServerJoined({node.id, info.address, node.incarnation}, info.stored,
                                   node.closing(), now, events);
  }
  if (!job.run->parts().server_watch.Uses(node.id)) return;
  events.push_back(ServerFailed{job.plan.id, node.id,
                                absl::StrCat("it has come back without ", TextOf(needed))});
}

std::vector<std::string> SchedulerCore::LivingLogs() const {
  std::vector<std::string> living;
  for (const JobEntry* entry : jobs_.All()) {
    if (entry->plan.log && !entry->ended()) living.push_back(entry->plan.unique_id);
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
  desired_.AnswerNode(node.id, actions.replies);  // The node gave up its earlier call.
  if (node.closing() && !was_closing) NoteClosing(node, now, actions);
  if (!was_heard && node.info.role == Role::kWorker && !node.closing())
    placer_.slots().OpenNode(node.id);
  const bool current = desired_.IsNewest(node.id, report.generation_seen);
  TakeNodeReport(node, report, current, now, actions);
  ReleaseSlots();
  placer_.slots().Report(report.node, report.tasks, current);
  TellRevision();
  desired_.HoldNode(ticket, node.id, report.generation_seen, now);
  Settle(now, actions);
  return absl::OkStatus();
}

void SchedulerCore::TakeNodeReport(const Node& node, const NodeReport& report, bool current,
                                   Instant now, Actions& actions) {
  for (const TableReport& table : report.tables) {
    JobRun* run = jobs_.RunOf(table.job);
    // A failure under an older desired state does not count; a later sync reports it if it lasts.
    if (run == nullptr || (table.failure.happened() && !current)) continue;
    run->OnTableReport(node.id, table, now, actions.events);
  }
  for (const TaskState& state : report.tasks) {
    JobRun* run = state.exited ? jobs_.RunOf(state.task.job) : nullptr;
    const Task* task = run == nullptr ? nullptr : run->parts().tasks.Find(state.task);
    if (task == nullptr || task->node != node.id) continue;
    run->OnTaskExited(state.task, state.exit, node.leaving, now, actions.events);
  }
}

// ---------------------------------------------------------------- tasks

absl::Status SchedulerCore::SyncTask(Ticket ticket, const TaskReport& report, Instant now,
                                     Actions& actions) {
  JobEntry* entry = jobs_.Find(report.task.job);
  if (entry != nullptr && !revisions_.Has(report.revision_seen)) {
    EndForOlderStore(*entry, absl::StrCat("task ", report.task.rank.value()), now, actions.events);
    Settle(now, actions);
  }
  JobRun* run = jobs_.RunOf(report.task.job);
  if (run == nullptr) return NoSuchJob(report.task.job);
  const Task* reporter = run->parts().tasks.Find(report.task);
  const NodeId node = reporter == nullptr ? NodeId() : reporter->node;
  const auto before = static_cast<std::ptrdiff_t>(actions.events.size());
  CAPSTAN_RETURN_IF_ERROR(run->OnTaskReport(report, now, actions.events));
  // The updates come before the events that the report has caused, since one may be the job's end.
  if (!report.updates.empty()) {
    actions.events.insert(actions.events.begin() + before,
                          UpdatesRecorded{report.task, report.updates});
  }
  if (report.failure.reason == FailureReason::kDeviceLost) {
    placer_.slots().LoseGpus(node, report.task, report.gpus_lost);
    nodes_changed_ = true;
  }
  TellRevision();
  desired_.HoldTask(ticket, report, now, actions.replies);
  // The core has accepted a failure, which may have ended the job or the task. It answers OK now,
  // because Settle() would refuse the task.
  if (run->parts().ended() || report.failure.happened())
    desired_.AnswerTask(report.task, actions.replies);
  Settle(now, actions);
  desired_.AnswerTaskUnlessItWaits(report.task, actions.replies);
  return absl::OkStatus();
}

// ---------------------------------------------------------------- users

absl::Status SchedulerCore::SubmitJob(const JobPlan& plan, Instant now, Actions& actions,
                                      const std::optional<RestoreFrom>& restore) {
  CAPSTAN_RETURN_IF_ERROR(jobs_.CheckFolders(plan.folders, now));
  CAPSTAN_RETURN_IF_ERROR(placer_.Enqueue(plan));
  JobEntry& entry = jobs_.Add(plan, now);
  entry.restore = restore;
  // The shards store the incarnations of the tasks that trained them, perhaps in another cluster.
  if (restore) incarnations_.RaiseTo(restore->at.incarnation.Next());
  actions.events.push_back(JobSubmitted{plan.id});
  nodes_changed_ = true;  // The row of nodes has the counters.
  changed_jobs_.insert(plan.id);
  Settle(now, actions);
  return absl::OkStatus();
}

absl::Status SchedulerCore::Adopt(const Adoption& from, Instant now, Actions& actions) {
  JobEntry& entry = *jobs_.Find(from.job);
  Events events;
  const absl::Status status =
      TakeUpRun(from, membership_, placer_.slots(), now, incarnations_, entry, events);
  if (!status.ok() || from.only_check) {
    jobs_.Remove(from.job);
    return status;
  }
  jobs_.TakeUp(entry);
  actions.events.push_back(JobAdopted{from.job, from.cluster, from.record_age});
  for (Event& event : events) actions.events.push_back(std::move(event));
  nodes_changed_ = true;  // The row of nodes has the counters.
  desired_.NoteChanged();
  Settle(now, actions);
  return absl::OkStatus();
}

absl::StatusOr<JobState> SchedulerCore::StopJob(const JobId& job, Instant now, Actions& actions) {
  JobEntry* entry = jobs_.Find(job);
  if (entry == nullptr) return NoSuchJob(job);
  if (entry->run != nullptr) {
    entry->run->End(JobState::kStopped, {}, now, actions.events);
  } else if (!entry->stopped) {
    EndUnstarted(*entry, {}, now, actions.events);
  }
  const JobState state = entry->state();
  Settle(now, actions);
  return state;
}

absl::StatusOr<CheckpointId> SchedulerCore::SaveAndStopJob(const JobId& job, Instant now,
                                                           Actions& actions) {
  CAPSTAN_ASSIGN_OR_RETURN(JobRun* const run, RunToSave(job));
  CAPSTAN_ASSIGN_OR_RETURN(const CheckpointId id,
                           run->AskCheckpoint(JobRun::AndThen::kStop, now, actions.events));
  Settle(now, actions);
  return id;
}

absl::Status SchedulerCore::WatchJob(Ticket ticket, const JobId& job, uint64_t after_revision,
                                     absl::Duration limit, Instant now, Actions& actions) {
  const JobEntry* entry = jobs_.Find(job);
  if (entry == nullptr) return NoSuchJob(job);
  if (entry->revision() > after_revision || limit <= absl::ZeroDuration() || entry->ended()) {
    actions.replies.push_back(JobReply{ticket, job});
    return absl::OkStatus();
  }
  CAPSTAN_RETURN_IF_ERROR(waiting_.CheckRoom<JobNews>());
  waiting_.Hold(ticket, JobNews{job, after_revision}, now + limit);
  return absl::OkStatus();
}

absl::Status SchedulerCore::DeleteJob(const JobId& job, Instant now, Actions& actions) {
  const JobEntry* entry = jobs_.Find(job);
  if (entry == nullptr) return NoSuchJob(job);
  if (!entry->ended()) {
    return absl::FailedPreconditionError(
        absl::StrCat(job, " is ", entry->run == nullptr ? "PENDING" : "RUNNING", " (",
                     entry->View(now).detail, "), expected a job that has ended; stop it first"));
  }
  Forget(job, actions);
  Settle(now, actions);
  return absl::OkStatus();
}

// ---------------------------------------------------------------- checkpoints

absl::StatusOr<JobRun*> SchedulerCore::RunToSave(const JobId& job) {
  JobEntry* entry = jobs_.Find(job);
  if (entry == nullptr) return NoSuchJob(job);
  if (entry->run != nullptr) return entry->run.get();
  return absl::FailedPreconditionError(absl::StrCat(job, " has not started"));
}

absl::Status SchedulerCore::SaveCheckpoint(Ticket ticket, const JobId& job,
                                           std::optional<CheckpointId> asked, absl::Duration limit,
                                           Instant now, Actions& actions) {
  CAPSTAN_ASSIGN_OR_RETURN(JobRun* const run, RunToSave(job));
  CAPSTAN_RETURN_IF_ERROR(waiting_.CheckRoom<CheckpointNews>());
  if (asked) {
    CAPSTAN_ASSIGN_OR_RETURN(const RestoreFrom* const complete,
                             run->parts().checkpoints.all().Find(*asked));
    if (complete != nullptr) {
      actions.replies.push_back(
          CheckpointReply{ticket, absl::OkStatus(), complete->id, complete->folder, *asked});
      return absl::OkStatus();
    }
  } else {
    CAPSTAN_ASSIGN_OR_RETURN(asked,
                             run->AskCheckpoint(JobRun::AndThen::kTrainOn, now, actions.events));
  }
  waiting_.Hold(ticket, CheckpointNews{job, *asked}, now + limit);
  Settle(now, actions);
  return absl::OkStatus();
}

absl::Status SchedulerCore::OpenSnapshot(Ticket ticket, const JobId& job, uint64_t reader,
                                         absl::Duration limit, Instant now, Actions& actions) {
  CAPSTAN_ASSIGN_OR_RETURN(JobRun* const run, RunToSave(job));
  CAPSTAN_RETURN_IF_ERROR(waiting_.CheckRoom<SnapshotNews>());
  CAPSTAN_ASSIGN_OR_RETURN(const CheckpointId id, run->AskSnapshot(reader, now, actions.events));
  waiting_.Hold(ticket, SnapshotNews{job, id}, now + limit);
  Settle(now, actions);
  return absl::OkStatus();
}

void SchedulerCore::CheckpointPublished(const JobId& job, CheckpointId id,
                                        const absl::Status& status, Instant now, Actions& actions) {
  if (JobRun* run = jobs_.RunOf(job)) {
    run->OnCheckpointPublished(id, status, now, actions.events);
    if (status.ok()) actions.removals.push_back(job);
  }
  Settle(now, actions);
}

void SchedulerCore::ModelPublished(const TaskKey& exporter, const absl::Status& status, Instant now,
                                   Actions& actions) {
  if (JobRun* run = jobs_.RunOf(exporter.job)) {
    run->OnModelPublished(exporter, status, now, actions.events);
  }
  Settle(now, actions);
}

absl::Status SchedulerCore::ExportJob(const JobId& job, const std::string& folder,
                                      const std::string& one_name, Instant now, Actions& actions) {
  const JobEntry* entry = jobs_.Find(job);
  if (entry == nullptr) return NoSuchJob(job);
  JobRun* run = entry->run.get();
  if (run == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(job, " has no model: it has not started"));
  }
  if (!folder.empty()) {
    CAPSTAN_RETURN_IF_ERROR(jobs_.CheckFolders({.output = one_name}, now, job));
  }
  CAPSTAN_RETURN_IF_ERROR(run->AskExport(folder, now, actions.events));
  Settle(now, actions);
  return absl::OkStatus();
}

// ---------------------------------------------------------------- time

void SchedulerCore::Tick(Instant now, Actions& actions) {
  NoteStall(now, actions);
  const size_t first_event = actions.events.size();
  membership_.Tick(now, actions.events);
  TakeNodeDeaths(first_event, now, actions);
  for (JobEntry* entry : jobs_.Running()) {
    JobRun& run = *entry->run;
    // Limits of time do not run while no report can arrive.
    if (membership_.isolated()) run.RestartLimits(now, options_.rejoin);
    ExpireTasks(run, now, actions.events);
    run.Tick(now, actions.events);
  }
  Settle(now, actions);
  desired_.AnswerExpired(now, actions.replies);
  due_ = NextDeadline();
}

// If the daemon is silent, too, its tasks die when the daemon's lease ends. If this scheduler is
// isolated, no node dies.
void SchedulerCore::ExpireTasks(JobRun& run, Instant now, Events& events) {
  const auto is_silent = [&](const NodeId& id) {
    const Node* node = membership_.Find(id);
    return node != nullptr && node->alive && now - node->last_seen >= options_.lease / 2;
  };
  run.ExpireTasks(is_silent, now, events);
}

Instant SchedulerCore::NextDeadline() const {
  Instant next =
      std::min({membership_.NextDeadline(), waiting_.NextDeadline(), desired_.NextDeadline()});
  for (const JobEntry* entry : jobs_.Running()) next = std::min(next, entry->run->NextDeadline());
  return std::min(next, jobs_.FirstEnd() + options_.ended_jobs_age);
}

// ---------------------------------------------------------------- views

absl::StatusOr<JobView> SchedulerCore::Job(const JobId& job, Instant now) const {
  const JobEntry* entry = jobs_.Find(job);
  if (entry == nullptr) return NoSuchJob(job);
  JobView view = entry->View(now);
  for (TaskView& task : view.tasks) {
    task.gpus = placer_.slots().GpusOf(task.node, {view.id, task.rank, task.incarnation});
  }
  return view;
}

std::vector<JobView> SchedulerCore::Jobs(Instant now) const {
  std::vector<JobView> views;
  for (const JobEntry* entry : jobs_.All()) views.push_back(*Job(entry->plan.id, now));
  return views;
}

std::vector<NodeView> SchedulerCore::Nodes() const {
  const WorkerSlots& slots = placer_.slots();
  std::vector<NodeView> views;
  for (const Node* node : membership_.All()) {
    views.push_back({.id = node->id,
                     .info = node->info,
                     .incarnation = node->incarnation,
                     .alive = node->alive,
                     .draining = node->closing(),
                     .last_seen = node->last_seen,
                     .tasks = slots.Taken(node->id),
                     .shards = ShardsOn(jobs_, node->id),
                     .gpus_taken = slots.GpusTaken(node->id),
                     .gpus_lost = slots.GpusLost(node->id)});
  }
  return views;
}

}  // namespace capstan::scheduler
