// MemoryBudget: how much memory shards may take on this server, accounted per job.
//
// Counted are values and optimizer state, which live as long as the shard (those of a sparse table
// grow); what comes and goes with messages is bounded elsewhere (each worker's gradients on their
// way). Copies of one shard count once: where there are two, one is about to replace the other.
// Thread safety: thread-safe.
#ifndef CAPSTAN_SERVER_STORE_MEMORY_BUDGET_H_
#define CAPSTAN_SERVER_STORE_MEMORY_BUDGET_H_

#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/types/ids.h"

namespace capstan::server {

class MemoryBudget : public std::enable_shared_from_this<MemoryBudget> {
 public:
  struct Limits {
    int64_t all = 0;      // Bytes of all jobs together; 0: no limit.
    int64_t one_job = 0;  // Bytes of each job; 0: no limit.
  };

  // Memory that is accounted for as long as this object exists.
  class Reservation {
   public:
    Reservation() = default;  // It reserves nothing.
    Reservation(Reservation&& other) noexcept { *this = std::move(other); }
    Reservation& operator=(Reservation&& other) noexcept {
      std::swap(budget_, other.budget_);
      std::swap(job_, other.job_);
      std::swap(shard_, other.shard_);
      return *this;
    }
    ~Reservation() {
      if (budget_ != nullptr) budget_->Release(job_, shard_);
    }

    // Reserves `bytes` for the shard, unless it has more. Errors: as Reserve; then nothing changes.
    absl::Status Grow(int64_t bytes) {
      return budget_ == nullptr ? absl::OkStatus() : budget_->Grow(job_, shard_, bytes);
    }
    // Same as Grow, but `bytes` may be less than before. Less counts once there is no other copy of
    // the shard.
    absl::Status Resize(int64_t bytes) {
      return budget_ == nullptr ? absl::OkStatus() : budget_->Resize(job_, shard_, bytes);
    }

   private:
    friend class MemoryBudget;
    std::shared_ptr<MemoryBudget> budget_;  // Shared with the server and every reservation.
    JobId job_;
    ShardKey shard_;
  };

  // Must be owned by a shared_ptr.
  explicit MemoryBudget(const Limits& limits) : limits_(limits) {}

  // Errors: kResourceExhausted  beyond a limit; names it, what is asked for and what is held.
  absl::StatusOr<Reservation> Reserve(const JobId& job, const ShardKey& shard, int64_t bytes);
  int64_t HeldBy(const JobId& job) const;
  int64_t held() const;

 private:
  struct Shard {
    int copies = 0;
    int64_t bytes = 0;  // Bytes of the largest copy.
  };
  struct Job {
    int64_t bytes = 0;
    std::map<ShardKey, Shard> shards;
  };
  absl::Status Grow(const JobId& job, const ShardKey& shard, int64_t bytes);
  absl::Status Resize(const JobId& job, const ShardKey& shard, int64_t bytes);
  absl::Status GrowLocked(const JobId& job, const ShardKey& shard, int64_t bytes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Release(const JobId& job, const ShardKey& shard);

  const Limits limits_;
  mutable absl::Mutex mutex_;
  int64_t held_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<JobId, Job> jobs_ ABSL_GUARDED_BY(mutex_);  // Each has at least one shard.
};

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_STORE_MEMORY_BUDGET_H_
