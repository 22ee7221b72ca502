// SimScheduler's jobs: their submission, and whom what happens to them concerns.
#include <algorithm>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "scheduler/admission/admitted_codec.h"
#include "tests/simulation/shells/sim_scheduler.h"

namespace capstan::sim {
namespace {

// The job of whose course an event is. Null: it concerns all.
const JobId* JobIn(const scheduler::Event& event) {
  const auto job_in = [](const auto& of_kind) -> const JobId* {
    if constexpr (requires { of_kind.job; }) return &of_kind.job;
    if constexpr (requires { of_kind.task; }) return &of_kind.task.job;
    return nullptr;
  };
  return std::visit(job_in, event);
}

bool ShareServer(const JobWorld& one, const JobWorld& other) {
  const std::set<NodeId> servers = HoldersOf(one.routing);
  const std::set<NodeId> others = HoldersOf(other.routing);
  return std::any_of(servers.begin(), servers.end(),
                     [&](const NodeId& server) { return others.contains(server); });
}

}  // namespace

void SimScheduler::SubmitDue() {
  if (core_ == nullptr) return;
  for (const auto& job : world_->jobs) {
    const bool due = world_->loop.Now().SinceOrigin() >= job->options.submit_after;
    if (due && !jobs_.contains(job->id())) Submit(*job);
  }
}

void SimScheduler::Submit(const JobWorld& submitted) {
  const auto& job = submitted.workload.job();
  jobs_[job->plan.id] = job;
  scheduler::Actions actions;
  const absl::Status status = core_->SubmitJob(job->plan, process_.Now(), actions);
  if (!status.ok()) world_->failure = absl::StrCat("submit: ", status.ToString());
  Commit(std::move(actions), {scheduler::EncodeAdmitted(*job)});
}

std::optional<scheduler::JobView> SimScheduler::Job(const JobId& job) const {
  if (core_ == nullptr) return std::nullopt;
  const auto view = core_->Job(job, process_.Now());
  return view.ok() ? std::optional(*view) : std::nullopt;
}

// Passes an event of a job to that job's checkers.
void SimScheduler::TellCheckers(const scheduler::Event& event) {
  const auto tell = [&](Checker& checker) { checker.Happened(event); };
  const JobId* id = JobIn(event);
  if (id == nullptr) return world_->Tell(tell);
  JobWorld& job = world_->JobOf(*id);
  NoteCourse(job, event);
  job.Tell(tell);
}

void SimScheduler::NoteCourse(JobWorld& job, const scheduler::Event& event) {
  if (std::holds_alternative<scheduler::JobSubmitted>(event)) job.submitted = true;
  if (std::holds_alternative<scheduler::JobStarted>(event)) {
    job.started = true;
    if (job.waited) ++world_->reached[Reached::kJobWaited];
  }
  const auto* phase = std::get_if<scheduler::PhaseStarted>(&event);
  const auto* ended = std::get_if<scheduler::JobEnded>(&event);
  if (phase != nullptr) job.training = phase->phase == scheduler::JobPhase::kTraining;
  if (ended != nullptr) job.ended = true;
  for (const auto& other : world_->jobs) {
    if (other.get() == &job || !other->submitted || other->ended) continue;
    const bool beside = phase != nullptr && job.training && other->training;
    if (beside && ShareServer(job, *other)) ++world_->reached[Reached::kJobsOnOneServer];
    if (ended == nullptr) continue;
    if (!other->started) other->waited = true;
    const bool stopped = ended->state == scheduler::JobState::kStopped;
    if (other->started && job.started && stopped) other->outlived_stop = true;
  }
}

}  // namespace capstan::sim
