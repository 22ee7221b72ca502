#include "scheduler/admission/job_capabilities.h"

#include "common/security/capability.h"

namespace capstan::scheduler {

bool IsToBeRenewed(absl::Time expiry, absl::Time now) {
  return expiry - now <= kCapabilityLifetime / 2;
}

std::string TaskCapability(const AdmittedJob& job, Rank rank, Incarnation incarnation,
                           absl::Time now) {
  if (!job.capability_key.has_value()) return "";
  return MintCapability(*job.capability_key, {.job = job.plan.id,
                                              .scope = Capability::Scope::kTask,
                                              .rank = rank,
                                              .incarnation = incarnation,
                                              .expiry = now + kCapabilityLifetime});
}

std::string ReadCapability(const AdmittedJob& job, absl::Time now) {
  if (!job.capability_key.has_value()) return "";
  return MintCapability(*job.capability_key, {.job = job.plan.id,
                                              .scope = Capability::Scope::kRead,
                                              .rank = {},
                                              .incarnation = {},
                                              .expiry = now + kCapabilityLifetime});
}

void AddTaskCapabilities(const AdmittedJobs& jobs, absl::Time now, v1::SyncNodeResponse* response) {
  for (v1::TaskAssignment& task : *response->mutable_tasks()) {
    task.set_capability(TaskCapability(*jobs.at(task.job_id()), Rank(task.rank()),
                                       Incarnation(task.incarnation()), now));
  }
}

void RenewCapability(const v1::SyncTaskRequest& request, const AdmittedJob& job, absl::Time now,
                     v1::SyncTaskResponse* response) {
  if (!IsToBeRenewed(absl::FromUnixSeconds(request.capability_expiry_unix_s()), now)) return;
  response->set_capability(
      TaskCapability(job, Rank(request.rank()), Incarnation(request.incarnation()), now));
}

}  // namespace capstan::scheduler
