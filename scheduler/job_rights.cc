#include "scheduler/job_rights.h"

#include <algorithm>
#include <iterator>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/security/capability.h"
#include "common/security/job_access.h"
#include "common/status/status_macros.h"

namespace capstan::scheduler {
namespace {

absl::Status CheckAccess(const AdmittedJobs& jobs, const JobId& job, const JobCaller& caller,
                         bool (*may)(const std::optional<Identity>&, absl::string_view)) {
  const auto found = jobs.find(job);
  if (found == jobs.end()) return NoSuchJob(job);
  return may(caller, found->second->plan.owner) ? absl::OkStatus() : NoSuchJob(job);
}

// Empty: any node.
std::optional<NodeId> NodeOf(const JobCaller& caller) {
  if (!caller.has_value()) return std::nullopt;
  return caller->name;
}

}  // namespace

absl::Status CheckMayRead(const AdmittedJobs& jobs, const JobId& job, const JobCaller& caller) {
  return CheckAccess(jobs, job, caller, &capstan::MayRead);
}

absl::Status CheckMayChange(const AdmittedJobs& jobs, const JobId& job, const JobCaller& caller) {
  return CheckAccess(jobs, job, caller, &capstan::MayChange);
}

absl::Status CheckReportsOwnTask(const JobTable& jobs, const TaskKey& task,
                                 const JobCaller& caller) {
  if (!caller.has_value()) return absl::OkStatus();
  const Task* const reporter = TaskOf(jobs, task);
  if (reporter == nullptr || reporter->node == caller->name) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat(
      "task ", task.rank.value(), " of ", task.job, " runs on the worker \"", reporter->node,
      "\", but the caller's certificate names ", FormatIdentity(*caller)));
}

absl::Status CheckReadsForTask(const AdmittedJob& job, const JobTable& jobs,
                               const JobCaller& caller, absl::string_view capability,
                               absl::Time now) {
  if (!caller.has_value() || caller->role != PeerRole::kWorker) return absl::OkStatus();
  const JobId& id = job.plan.id;
  if (!job.capability_key.has_value()) {
    return absl::PermissionDeniedError(absl::StrCat("the job \"", id, "\" has no capability key"));
  }
  const absl::StatusOr<Capability> shown = VerifyCapability(*job.capability_key, id, capability);
  // Bytes that are no capability give nobody a right.
  if (!shown.ok()) return absl::PermissionDeniedError(shown.status().message());
  CAPSTAN_RETURN_IF_ERROR(CheckNotExpired(*shown, now));
  return CheckReportsOwnTask(jobs, {id, shown->rank, shown->incarnation}, caller);
}

bool JobRights::HasJob(const JobId& job) {
  absl::MutexLock lock(&state_->mutex());
  return state_->core().jobs().Find(job) != nullptr;
}

bool JobRights::MayRead(const JobId& job, const JobCaller& caller) {
  absl::MutexLock lock(&state_->mutex());
  return CheckMayRead(state_->jobs(), job, caller).ok();
}

bool JobRights::MayKeepLog(const TaskKey& task, const JobCaller& caller) {
  absl::MutexLock lock(&state_->mutex());
  const JobTable& jobs = state_->core().jobs();
  if (!caller.has_value()) return jobs.Find(task.job) != nullptr;
  const JobRun* const run = jobs.RunOf(task.job);
  if (run == nullptr) return false;
  const std::vector<Task>& tasks = run->parts().tasks.all();
  if (task.rank.value() < 0 || task.rank.value() >= std::ssize(tasks)) return false;
  const Task& last = run->parts().tasks.at(task.rank);
  if (task.incarnation >= last.incarnation) {
    return task.incarnation == last.incarnation && last.node == caller->name;
  }
  return std::any_of(tasks.begin(), tasks.end(),
                     [&](const Task& each) { return each.node == caller->name; });
}

bool JobRights::MayWriteInto(const std::string& folder, const JobCaller& caller) {
  absl::MutexLock lock(&state_->mutex());
  return state_->Running().ok() && state_->core().jobs().MayWriteInto(folder, NodeOf(caller));
}

bool JobRights::MayReadFrom(const std::string& folder, const JobCaller& caller) {
  absl::MutexLock lock(&state_->mutex());
  return state_->Running().ok() && state_->core().jobs().MayReadFrom(folder, NodeOf(caller));
}

}  // namespace capstan::scheduler
