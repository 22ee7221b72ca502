#include "server/engine/job/held_jobs.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/security/job_access.h"

namespace capstan::server {

absl::StatusOr<std::shared_ptr<HeldJob>> HeldJobs::Find(const JobId& job) const {
  absl::MutexLock lock(&mutex_);
  const auto it = jobs_.find(job);
  if (it != jobs_.end()) return it->second;
  return NotHeldLocked(job);
}

absl::StatusOr<std::shared_ptr<HeldJob>> HeldJobs::FindToRead(
    const JobId& job, const std::optional<Identity>& caller) const {
  absl::MutexLock lock(&mutex_);
  const auto it = jobs_.find(job);
  if (it != jobs_.end() && MayRead(caller, it->second->owner())) return it->second;
  return NotHeldLocked(job);
}

absl::Status HeldJobs::NotHeldLocked(const JobId& job) const {
  return absl::NotFoundError(absl::StrCat("job \"", job, "\" is not held here; this server holds ",
                                          jobs_.size(), " jobs"));
}

std::vector<std::shared_ptr<HeldJob>> HeldJobs::All() const {
  absl::MutexLock lock(&mutex_);
  std::vector<std::shared_ptr<HeldJob>> all;
  for (const auto& [id, job] : jobs_) all.push_back(job);
  return all;
}

std::vector<std::shared_ptr<HeldJob>> HeldJobs::AllToRead(
    const std::optional<Identity>& caller) const {
  std::vector<std::shared_ptr<HeldJob>> jobs = All();
  std::erase_if(jobs, [&](const auto& job) { return !MayRead(caller, job->owner()); });
  return jobs;
}

void HeldJobs::Add(std::shared_ptr<HeldJob> job) {
  absl::MutexLock lock(&mutex_);
  const JobId id = job->job();
  jobs_.insert({id, std::move(job)});
}

void HeldJobs::Drop(const JobId& job) {
  std::shared_ptr<HeldJob> dropped;
  {
    absl::MutexLock lock(&mutex_);
    const auto it = jobs_.find(job);
    if (it == jobs_.end()) return;
    dropped = std::move(it->second);
    jobs_.erase(it);
  }
  dropped->Close(absl::NotFoundError(absl::StrCat("job \"", job, "\" is no longer held here")));
}

void HeldJobs::DropAll(const absl::Status& reason) {
  std::map<JobId, std::shared_ptr<HeldJob>> dropped;
  {
    absl::MutexLock lock(&mutex_);
    dropped.swap(jobs_);
  }
  for (const auto& [id, job] : dropped) job->Close(reason);
}

void HeldJobs::SetReadLease(Instant until) {
  for (const std::shared_ptr<HeldJob>& job : All()) job->assignment().SetReadLease(until);
}

std::shared_ptr<HeldJob> HeldJobs::FindLogged(const JobId& job,
                                              const std::string& unique_id) const {
  const auto held = Find(job);
  return held.ok() && (*held)->unique_id() == unique_id ? *held : nullptr;
}

void HeldJobs::OnLogged(const JobId& job, const std::string& unique_id, const ShardKey& shard,
                        Term term, Position position) {
  const auto held = FindLogged(job, unique_id);
  if (held != nullptr) held->commits().OnLogged(shard, term, position);
}

void HeldJobs::OnLogFailed(const JobId& job, const std::string& unique_id,
                           const absl::Status& status) {
  const auto held = FindLogged(job, unique_id);
  // For the job this is as if the server had died: a full disk is not the job's lack of memory.
  if (held != nullptr) held->Fail(absl::UnavailableError(status.message()));
}

Instant HeldJobs::Tick(Instant now) {
  Instant next = Instant::InfiniteFuture();
  for (const std::shared_ptr<HeldJob>& job : All()) {
    next = std::min(next, job->Tick(now));
  }
  return next;
}

}  // namespace capstan::server
