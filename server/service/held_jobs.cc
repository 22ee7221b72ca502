#include "server/service/held_jobs.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace capstan::server {

absl::StatusOr<std::shared_ptr<HeldJob>> HeldJobs::Find(const JobId& job) const {
  absl::MutexLock lock(&mutex_);
  const auto it = jobs_.find(job);
  if (it != jobs_.end()) return it->second;
  return absl::NotFoundError(absl::StrCat("job \"", job, "\" is not held here; this server holds ",
                                          jobs_.size(), " jobs"));
}

std::vector<std::shared_ptr<HeldJob>> HeldJobs::All() const {
  absl::MutexLock lock(&mutex_);
  std::vector<std::shared_ptr<HeldJob>> all;
  for (const auto& [id, job] : jobs_) all.push_back(job);
  return all;
}

void HeldJobs::Add(std::shared_ptr<HeldJob> job) {
  Early early;
  {
    absl::MutexLock lock(&mutex_);
    jobs_.insert({job->job(), job});
    if (const auto it = early_.find(job->job()); it != early_.end()) {
      early = std::move(it->second);
      early_.erase(it);
    }
  }
  for (const auto& [shard, at] : early.logged) job->OnLogged(shard, at.first, at.second);
  if (!early.failure.ok()) job->Fail(early.failure);
}

void HeldJobs::Drop(const JobId& job) {
  std::shared_ptr<HeldJob> dropped;
  {
    absl::MutexLock lock(&mutex_);
    early_.erase(job);
    const auto it = jobs_.find(job);
    if (it == jobs_.end()) return;
    dropped = std::move(it->second);
    jobs_.erase(it);
  }
  dropped->Close(absl::NotFoundError(absl::StrCat("job \"", job, "\" is no longer held here")));
}

void HeldJobs::DropAll(const absl::Status& reason) {
  absl::btree_map<JobId, std::shared_ptr<HeldJob>> dropped;
  {
    absl::MutexLock lock(&mutex_);
    dropped.swap(jobs_);
    early_.clear();
  }
  for (const auto& [id, job] : dropped) job->Close(reason);
}

void HeldJobs::SetReadLease(Instant until) {
  for (const std::shared_ptr<HeldJob>& job : All()) job->SetReadLease(until);
}

std::shared_ptr<HeldJob> HeldJobs::FindOrKeep(const JobId& job,
                                              const std::function<void(Early&)>& keep) {
  absl::MutexLock lock(&mutex_);
  const auto it = jobs_.find(job);
  if (it != jobs_.end()) return it->second;
  keep(early_[job]);
  return nullptr;
}

void HeldJobs::OnLogged(const JobId& job, const ShardKey& shard, Term term, Position position) {
  const auto held = FindOrKeep(job, [&](Early& early) { early.logged[shard] = {term, position}; });
  if (held != nullptr) held->OnLogged(shard, term, position);
}

void HeldJobs::OnLogFailed(const JobId& job, const absl::Status& status) {
  // To the job it is as if this server had died; a full disk is not its own want of memory.
  const absl::Status failure = absl::UnavailableError(status.message());
  const auto held = FindOrKeep(job, [&](Early& early) { early.failure = failure; });
  if (held != nullptr) held->Fail(failure);
}

Instant HeldJobs::Tick(Instant now) {
  Instant next = Instant::InfiniteFuture();
  for (const std::shared_ptr<HeldJob>& job : All()) {
    next = std::min(next, job->Tick(now));
  }
  return next;
}

}  // namespace capstan::server
