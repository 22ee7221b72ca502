// SchedulerCore: the consequences of a message. Jobs end and start, slots are freed and taken,
// nodes get a new desired state, held calls are answered.
#include <algorithm>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "common/planted/planted_bug.h"
#include "scheduler/core/placement/drain_state.h"
#include "scheduler/core/scheduler_core.h"

namespace capstan::scheduler {

void SchedulerCore::Settle(Instant now, Actions& actions) {
  NoteEnded();
  ForgetOutdated(now, actions);
  ReleaseSlots();
  NoteLeft(actions);
  placer_.MoveTasks(now, actions.events);
  placer_.PlaceTasks(now, actions.events);
  placer_.StartJobs(now, actions.events);
  placer_.ExplainPending();
  RefreshDesired(now, actions);
  NoteHistory(now, actions);
  TakeFileWork(actions);
  desired_.AnswerChanged(actions.replies);
  AnswerUsers(now, actions);
  NoteChanges(now, actions);
  due_ = std::min(due_, NextDeadline());
}

// ---------------------------------------------------------------- jobs

void SchedulerCore::NoteEnded() {
  for (JobEntry* entry : jobs_.Running()) {
    if (!entry->run->parts().ended()) continue;
    jobs_.NoteEnded(*entry);
    leaving_.insert(entry->plan.id);
    changed_jobs_.insert(entry->plan.id);
    desired_.NoteChanged();
  }
}

void SchedulerCore::EndUnstarted(JobEntry& entry, const Failure& failure, Instant now,
                                 Events& events) {
  const JobId& job = entry.plan.id;
  entry.stopped = true;
  entry.stopped_at = now;
  entry.failure = failure;
  ++entry.told_revision;
  placer_.Dequeue(job);
  jobs_.NoteEnded(entry);
  changed_jobs_.insert(job);
  events.push_back(JobEnded{job, entry.state(), failure});
}

void SchedulerCore::ForgetOutdated(Instant now, Actions& actions) {
  for (const JobId& job : jobs_.Outdated(options_.ended_jobs_max, now - options_.ended_jobs_age)) {
    Forget(job, actions);
  }
}

void SchedulerCore::Forget(const JobId& job, Actions& actions) {
  // Processes of the job may still run. Their end will not be noticed any more, so the event comes
  // now.
  if (leaving_.erase(job) > 0) {
    actions.events.push_back(JobLeft{job, jobs_.RunOf(job)->parts().tasks.LastIncarnation()});
  }
  actions.changes.forgotten.insert(job);
  changed_jobs_.erase(job);
  jobs_.Remove(job);
}

void SchedulerCore::NoteLeft(Actions& actions) {
  for (auto job = leaving_.begin(); job != leaving_.end();) {
    if (placer_.slots().Runs(*job)) {
      ++job;
      continue;
    }
    actions.events.push_back(JobLeft{*job, jobs_.RunOf(*job)->parts().tasks.LastIncarnation()});
    job = leaving_.erase(job);
  }
}

void SchedulerCore::NoteHistory(Instant now, Actions& actions) {
  for (; actions.events_noted < actions.events.size(); ++actions.events_noted) {
    const Event& event = actions.events[actions.events_noted];
    std::vector<JobEvent> notable = NotableIn(event);
    if (notable.empty()) continue;
    JobEntry* entry = jobs_.Find(*JobOf(event));
    if (entry == nullptr) continue;
    for (JobEvent& each : notable) {
      if (!entry->history.Add(std::move(each), now)) continue;
      ++entry->told_revision;
      changed_jobs_.insert(entry->plan.id);
    }
  }
}

// Takes the manifests and models that the shell must write.
void SchedulerCore::TakeFileWork(Actions& actions) {
  for (JobEntry* entry : jobs_.Running()) {
    JobRun::Files files = entry->run->TakeFiles();
    if (files.checkpoint) actions.publishes.push_back(*std::move(files.checkpoint));
    if (files.model) actions.models.push_back(*std::move(files.model));
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
    desired_.RemoveNode(died, actions.replies);
    placer_.slots().RemoveNode(died.node);
    nodes_changed_ = true;
    dead.push_back({died.node, died.why, died.last_seen + options_.read_lease});
  }
  if (dead.empty()) return;
  for (JobEntry* entry : jobs_.Running()) entry->run->OnNodesDied(dead, now, actions.events);
}

void SchedulerCore::ReleaseSlots() {
  if (desired_.IsOutdated()) placer_.ReleaseSlots();
}

void SchedulerCore::RefreshDesired(Instant now, Actions& actions) {
  if (placer_.TakeChanged()) {
    nodes_changed_ = true;
    desired_.NoteChanged();
  }
  if (desired_.Refresh(now, actions.replies)) nodes_changed_ = true;
}

// ---------------------------------------------------------------- durable state

void SchedulerCore::NoteChanges(Instant now, Actions& actions) {
  Changes& changes = actions.changes;
  if (std::exchange(nodes_changed_, false)) changes.nodes = true;
  for (const JobId& job : std::exchange(changed_jobs_, {})) changes.jobs.insert(job);
  for (JobEntry* entry : jobs_.Running()) {
    const JobRun& run = *entry->run;
    if (entry->written_routing != run.parts().routing->generation) {
      entry->written_routing = run.parts().routing->generation;
      changes.routings.insert(entry->plan.id);
    }
    const bool decided = entry->written_version != run.parts().durable_version();
    const bool progressed = entry->written_revision != run.parts().revision &&
                            now - entry->written_at >= options_.progress_interval;
    if (!decided && !progressed) continue;
    entry->written_version = run.parts().durable_version();
    entry->written_revision = run.parts().revision;
    entry->written_at = now;
    changes.jobs.insert(entry->plan.id);
  }
  if (!changes.empty()) revisions_.Advance();
  for (Reply& reply : actions.replies) {
    if (auto* node = std::get_if<NodeReply>(&reply)) node->revision = revisions_.current();
    if (auto* task = std::get_if<TaskReply>(&reply)) task->revision = revisions_.current();
  }
}

// The answer to a call that is held now tells the revision.
void SchedulerCore::TellRevision() {
  if (revisions_.Tell()) nodes_changed_ = true;  // The row of nodes has the revision.
}

void SchedulerCore::Restored(Instant now, Actions& actions) {
  membership_.Restored(now, options_.rejoin);
  for (const Node* node : membership_.All()) {
    if (node->alive && node->info.role == Role::kWorker) placer_.slots().CloseNode(node->id);
  }
  revisions_.Begin();
  // A store that was restored from a backup does not have the latest incarnations and memberships.
  incarnations_.RaiseTo(options_.first_incarnation);
  if (Planted(PlantedBug::kReuseIncarnations)) incarnations_.next = options_.first_incarnation;
  for (const JobEntry* each : jobs_.All()) RestoreJob(*jobs_.Find(each->plan.id), now);
  desired_.NoteChanged();
  for (JobEntry* entry : jobs_.Running()) entry->run->Tick(now, actions.events);
  Settle(now, actions);
}

void SchedulerCore::RestoreJob(JobEntry& entry, Instant now) {
  const JobId& id = entry.plan.id;
  if (entry.run != nullptr) {
    entry.run->Restored(now, options_.rejoin, Generation(options_.first_incarnation.value()));
  }
  if (entry.ended()) {
    jobs_.NoteEnded(entry);
    if (entry.run != nullptr) leaving_.insert(id);  // The last incarnation may have missed it.
    return;
  }
  if (entry.run != nullptr) return jobs_.NoteRunning(entry);
  // Users saw fewer than this many revisions (reasons to wait) that were not stored.
  entry.told_revision += uint64_t{1} << 32;
  changed_jobs_.insert(id);  // The next incarnation adds to this one's revision.
  placer_.Enqueue(entry.plan).IgnoreError();
}

// ---------------------------------------------------------------- answers to users

// Finds the answers to the calls that WaitingCalls has, for each kind. None: there is no news, and
// the call is not late.
class SchedulerCore::Answerer {
 public:
  Answerer(const SchedulerCore& core, const Events& events) : core_(core), events_(events) {}

  std::optional<JobReply> operator()(const JobNews& awaited, bool is_late) const {
    const JobEntry* entry = core_.jobs_.Find(awaited.job);
    const bool changed = entry == nullptr || entry->revision() > awaited.after_revision;
    if (!changed && !is_late) return std::nullopt;
    return JobReply{.ticket = {}, .job = awaited.job};
  }

  std::optional<DrainReply> operator()(const DrainNews& awaited, bool is_late) const {
    DrainReply reply =
        DrainStateOf(awaited.node, core_.membership_, core_.placer_.slots(), core_.jobs_);
    if (!reply.safe_to_stop && !is_late) return std::nullopt;
    return reply;
  }

  std::optional<CheckpointReply> operator()(const CheckpointNews& awaited, bool is_late) const {
    CheckpointReply reply{.asked = awaited.asked};
    if (const CheckpointEnded* ended = FindEnd<CheckpointEnded>(awaited.job, awaited.asked)) {
      reply.id = ended->id;
      reply.folder = ended->folder;
      if (!ended->why.empty()) {
        reply.status = absl::FailedPreconditionError(absl::StrCat(
            "checkpoint ", ended->id.value(), " of ", ended->job, " was given up: ", ended->why));
      }
      return reply;
    }
    reply.status = CheckRuns(awaited.job, "checkpoint");
    if (reply.status.ok() && !is_late) return std::nullopt;
    return reply;
  }

  std::optional<SnapshotReply> operator()(const SnapshotNews& awaited, bool is_late) const {
    SnapshotReply reply{.job = awaited.job};
    if (const SnapshotTaken* taken = FindEnd<SnapshotTaken>(awaited.job, awaited.asked)) {
      reply.id = taken->id;
      reply.iteration = taken->iteration;
      reply.routing = core_.jobs_.RunOf(awaited.job)->parts().routing;
      if (!taken->why.empty()) {
        reply.status = absl::FailedPreconditionError(
            absl::StrCat("no snapshot of ", taken->job, ": ", taken->why));
      }
      return reply;
    }
    reply.status = CheckRuns(awaited.job, "snapshot");
    if (reply.status.ok() && !is_late) return std::nullopt;
    return reply;
  }

 private:
  // The first such event of this step about `asked` or a later one. Null: there is none.
  template <typename Kind>
  const Kind* FindEnd(const JobId& job, CheckpointId asked) const {
    for (const Event& event : events_) {
      const Kind* end = std::get_if<Kind>(&event);
      if (end != nullptr && end->job == job && end->id >= asked) return end;
    }
    return nullptr;
  }

  absl::Status CheckRuns(const JobId& job, absl::string_view what) const {
    const JobRun* run = core_.jobs_.RunOf(job);
    if (run != nullptr && !run->parts().ended()) return absl::OkStatus();
    return absl::FailedPreconditionError(
        absl::StrCat(job, " ended before the ", what, " was begun"));
  }

  const SchedulerCore& core_;
  const Events& events_;
};

void SchedulerCore::AnswerUsers(Instant now, Actions& actions) {
  waiting_.AnswerEach(now, Answerer(*this, actions.events), actions.replies);
}

}  // namespace capstan::scheduler
