#include "server/table_store/memory_budget.h"

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"

namespace capstan::server {
namespace {

absl::Status CheckLimit(const char* flag, const std::string& holder, int64_t limit, int64_t held,
                        int64_t bytes) {
  if (limit == 0 || bytes <= limit - held) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("needs ", bytes, " bytes: ", holder, " holds ",
                                                   held, " of the ", limit, " that ", flag,
                                                   " allows"));
}

}  // namespace

absl::StatusOr<MemoryBudget::Reservation> MemoryBudget::Reserve(const JobId& job, int64_t bytes) {
  absl::MutexLock lock(&mutex_);
  const auto of_job = by_job_.find(job);
  const int64_t job_held = of_job == by_job_.end() ? 0 : of_job->second;
  CAPSTAN_RETURN_IF_ERROR(CheckLimit("--memory-limit", "this server", limits_.all, held_, bytes));
  CAPSTAN_RETURN_IF_ERROR(CheckLimit("--job-memory-limit", absl::StrCat("job ", job, " here"),
                                     limits_.one_job, job_held, bytes));
  Reservation reservation;
  if (bytes == 0) return reservation;
  held_ += bytes;
  by_job_[job] += bytes;
  reservation.budget_ = shared_from_this();
  reservation.job_ = job;
  reservation.bytes_ = bytes;
  return reservation;
}

void MemoryBudget::Release(const JobId& job, int64_t bytes) {
  absl::MutexLock lock(&mutex_);
  held_ -= bytes;
  const auto of_job = by_job_.find(job);
  if ((of_job->second -= bytes) == 0) by_job_.erase(of_job);
}

int64_t MemoryBudget::HeldBy(const JobId& job) const {
  absl::MutexLock lock(&mutex_);
  const auto of_job = by_job_.find(job);
  return of_job == by_job_.end() ? 0 : of_job->second;
}

int64_t MemoryBudget::held() const {
  absl::MutexLock lock(&mutex_);
  return held_;
}

}  // namespace capstan::server
