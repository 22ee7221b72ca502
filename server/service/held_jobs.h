// HeldJobs: the jobs that this server holds, by id.
//
// Shared between the service, which looks jobs up, and the agent, which adds and drops them. A
// HeldJob is shared by this map and the calls that are using it, so that dropping a job never pulls
// it from under a call.
// Thread safety: thread-safe.
#ifndef CAPSTAN_SERVER_SERVICE_HELD_JOBS_H_
#define CAPSTAN_SERVER_SERVICE_HELD_JOBS_H_

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/btree_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/time/instant.h"
#include "common/types/ids.h"
#include "server/service/held_job.h"

namespace capstan::server {

class HeldJobs {
 public:
  // Errors: kNotFound  the job is not held here.
  absl::StatusOr<std::shared_ptr<HeldJob>> Find(const JobId& job) const;
  std::vector<std::shared_ptr<HeldJob>> All() const;  // Ordered by id.

  void Add(std::shared_ptr<HeldJob> job);  // REQUIRES: no job of this id is held.
  void Drop(const JobId& job);             // Waiting calls end with kNotFound.
  // Drops all; waiting calls end with `reason`.
  void DropAll(const absl::Status& reason);

  Instant Tick(Instant now);  // Ticks every job and returns the next deadline.

  // As HeldJob's. The log of a job that is being made may be faster than Add: what it says until
  // then is kept for that.
  void SetReadLease(Instant until);
  void OnLogged(const JobId& job, const ShardKey& shard, Term term, Position position);
  void OnLogFailed(const JobId& job, const absl::Status& status);

 private:
  struct Early {
    absl::btree_map<ShardKey, std::pair<Term, Position>> logged;  // The newest of each.
    absl::Status failure;
  };

  // Null if the job is not held: then `keep` has noted what Add is to tell it.
  std::shared_ptr<HeldJob> FindOrKeep(const JobId& job, const std::function<void(Early&)>& keep);

  mutable absl::Mutex mutex_;
  absl::btree_map<JobId, std::shared_ptr<HeldJob>> jobs_ ABSL_GUARDED_BY(mutex_);
  absl::btree_map<JobId, Early> early_ ABSL_GUARDED_BY(mutex_);  // Of jobs that are not held.
};

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_SERVICE_HELD_JOBS_H_
