// SchedulerCore: the events of jobs, and the time for which ended jobs are kept.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "scheduler/core/scheduler_core.h"

namespace capstan::scheduler {

// ---------------------------------------------------------------- events

void SchedulerCore::NoteHistory(Instant now, Actions& actions) {
  for (; actions.events_noted < actions.events.size(); ++actions.events_noted) {
    const Event& event = actions.events[actions.events_noted];
    std::vector<JobEvent> notable = NotableIn(event);
    if (notable.empty()) continue;
    const auto it = jobs_.find(*JobOf(event));
    if (it == jobs_.end()) continue;
    for (JobEvent& each : notable) {
      if (!it->second.history.Add(std::move(each), now)) continue;
      ++it->second.told_revision;
      changed_jobs_.insert(it->first);
    }
  }
}

// ---------------------------------------------------------------- ended jobs

const RestoreFrom* SchedulerCore::BeganWith(const JobId& job) const {
  const auto it = jobs_.find(job);
  return it != jobs_.end() && it->second.restore ? &*it->second.restore : nullptr;
}

void SchedulerCore::EndUnstarted(JobEntry& entry, const Failure& failure, Instant now,
                                 Events& events) {
  const JobId& job = entry.plan.id;
  entry.stopped = true;
  entry.stopped_at = now;
  entry.failure = failure;
  ++entry.told_revision;
  queue_.Remove(job);
  queue_changed_ = true;
  KeepEnded(entry);
  changed_jobs_.insert(job);
  events.push_back(JobEnded{job, entry.unstarted_state(), failure});
}

Instant SchedulerCore::EndOf(const JobEntry& entry) {
  return entry.run == nullptr ? entry.stopped_at : entry.run->ended_at();
}

void SchedulerCore::KeepEnded(const JobEntry& entry) {
  ended_.emplace(entry.number, entry.plan.id);
  ended_by_time_.emplace(EndOf(entry), entry.number);
}

void SchedulerCore::ForgetOldest(Instant now, Actions& actions) {
  while (ended_.size() > options_.ended_jobs_max) Forget(JobId(ended_.begin()->second), actions);
  while (!ended_by_time_.empty() &&
         now - ended_by_time_.begin()->first >= options_.ended_jobs_age) {
    Forget(JobId(ended_.at(ended_by_time_.begin()->second)), actions);
  }
}

// `job` is a copy, because the function removes the original.
void SchedulerCore::Forget(JobId job, Actions& actions) {
  const JobEntry& entry = jobs_.at(job);
  for (const Watch& watch : watches_) {
    if (watch.job == job) actions.job_replies.push_back({watch.ticket, job});
  }
  std::erase_if(watches_, [&job](const Watch& watch) { return watch.job == job; });
  // Processes of the job may still run. Their end will not be noticed any more, so the event comes
  // now.
  if (leaving_.erase(job) > 0) actions.events.push_back(JobLeft{job, entry.run->last_life()});
  actions.changes.forgotten.insert(job);
  changed_jobs_.erase(job);
  ended_by_time_.erase({EndOf(entry), entry.number});
  ended_.erase(entry.number);
  jobs_.erase(job);
}

absl::Status SchedulerCore::DeleteJob(const JobId& job, Instant now, Actions& actions) {
  const auto it = jobs_.find(job);
  if (it == jobs_.end()) {
    return absl::NotFoundError(absl::StrCat("there is no job \"", job, "\""));
  }
  const JobEntry& entry = it->second;
  if (!ended_.contains(entry.number)) {
    return absl::FailedPreconditionError(
        absl::StrCat(job, " is ", entry.run == nullptr ? "PENDING" : "RUNNING", " (",
                     ViewOf(entry, now).detail, "), expected a job that has ended; stop it first"));
  }
  Forget(job, actions);
  Settle(now, actions);
  return absl::OkStatus();
}

}  // namespace capstan::scheduler
