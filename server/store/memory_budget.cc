#include "server/store/memory_budget.h"

#include <algorithm>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"

namespace capstan::server {
namespace {

absl::Status CheckLimit(const char* flag, const std::string& holder, int64_t limit, int64_t held,
                        int64_t bytes) {
  if (limit == 0 || bytes == 0 || bytes <= limit - held) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("needs ", bytes, " bytes: ", holder, " holds ",
                                                   held, " of the ", limit, " that ", flag,
                                                   " allows"));
}

}  // namespace

absl::StatusOr<MemoryBudget::Reservation> MemoryBudget::Reserve(const JobId& job,
                                                                const ShardKey& shard,
                                                                int64_t bytes) {
  absl::MutexLock lock(&mutex_);
  CAPSTAN_RETURN_IF_ERROR(GrowLocked(job, shard, bytes));
  ++jobs_[job].shards[shard].copies;
  Reservation reservation;
  reservation.budget_ = shared_from_this();
  reservation.job_ = job;
  reservation.shard_ = shard;
  return reservation;
}

absl::Status MemoryBudget::Grow(const JobId& job, const ShardKey& shard, int64_t bytes) {
  absl::MutexLock lock(&mutex_);
  return GrowLocked(job, shard, bytes);
}

absl::Status MemoryBudget::Resize(const JobId& job, const ShardKey& shard, int64_t bytes) {
  absl::MutexLock lock(&mutex_);
  CAPSTAN_RETURN_IF_ERROR(GrowLocked(job, shard, bytes));
  Job& account = jobs_.at(job);
  Shard& held = account.shards.at(shard);
  if (held.copies > 1) return absl::OkStatus();
  const int64_t less = held.bytes - bytes;
  held_ -= less;
  account.bytes -= less;
  held.bytes = bytes;
  return absl::OkStatus();
}

absl::Status MemoryBudget::GrowLocked(const JobId& job, const ShardKey& shard, int64_t bytes) {
  const auto of_job = jobs_.find(job);
  int64_t job_held = 0, shard_held = 0;
  if (of_job != jobs_.end()) {
    job_held = of_job->second.bytes;
    const auto of_shard = of_job->second.shards.find(shard);
    if (of_shard != of_job->second.shards.end()) shard_held = of_shard->second.bytes;
  }
  const int64_t more = std::max<int64_t>(bytes - shard_held, 0);
  CAPSTAN_RETURN_IF_ERROR(CheckLimit("--memory-limit", "this server", limits_.all, held_, more));
  CAPSTAN_RETURN_IF_ERROR(CheckLimit("--job-memory-limit", absl::StrCat("job ", job, " here"),
                                     limits_.one_job, job_held, more));
  Job& account = jobs_[job];
  held_ += more;
  account.bytes += more;
  account.shards[shard].bytes += more;
  return absl::OkStatus();
}

void MemoryBudget::Release(const JobId& job, const ShardKey& shard) {
  absl::MutexLock lock(&mutex_);
  const auto of_job = jobs_.find(job);
  const auto of_shard = of_job->second.shards.find(shard);
  if (--of_shard->second.copies > 0) return;
  held_ -= of_shard->second.bytes;
  of_job->second.bytes -= of_shard->second.bytes;
  of_job->second.shards.erase(of_shard);
  if (of_job->second.shards.empty()) jobs_.erase(of_job);
}

int64_t MemoryBudget::HeldBy(const JobId& job) const {
  absl::MutexLock lock(&mutex_);
  const auto of_job = jobs_.find(job);
  return of_job == jobs_.end() ? 0 : of_job->second.bytes;
}

int64_t MemoryBudget::held() const {
  absl::MutexLock lock(&mutex_);
  return held_;
}

}  // namespace capstan::server
