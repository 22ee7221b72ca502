// HeldJobs: the jobs that this server holds, by id.
//
// Shared between the service, which looks jobs up, and the agent, which adds and drops them. A
// HeldJob is shared by this map and the calls that are using it, so that dropping a job never pulls
// it from under a call.
// Thread safety: thread-safe.
#ifndef CAPSTAN_SERVER_ENGINE_JOB_HELD_JOBS_H_
#define CAPSTAN_SERVER_ENGINE_JOB_HELD_JOBS_H_

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/security/certificates/identity.h"
#include "common/time/instant.h"
#include "common/types/ids.h"
#include "server/engine/job/held_job.h"

namespace capstan::server {

class HeldJobs {
 public:
  // Errors: kNotFound  the job is not held here.
  absl::StatusOr<std::shared_ptr<HeldJob>> Find(const JobId& job) const;
  // The same for a caller that wants to read the job. Without credentials there is no caller.
  // Errors: kNotFound  the job is not held here, or is another user's: the error does not say
  // which.
  absl::StatusOr<std::shared_ptr<HeldJob>> FindToRead(const JobId& job,
                                                      const std::optional<Identity>& caller) const;
  std::vector<std::shared_ptr<HeldJob>> All() const;  // Ordered by id.
  std::vector<std::shared_ptr<HeldJob>> AllToRead(const std::optional<Identity>& caller) const;

  // Adds a job before its first routing table, so that ticks and its log find it as soon as it has
  // deadlines and records. REQUIRES: no job of this id is held.
  void Add(std::shared_ptr<HeldJob> job);
  void Drop(const JobId& job);  // Waiting calls end with kNotFound.
  // Drops all; waiting calls end with `reason`.
  void DropAll(const absl::Status& reason);

  Instant Tick(Instant now);  // Ticks every job and returns the next deadline.

  void SetReadLease(Instant until);  // See JobAssignment.
  // See CommitPipeline::OnLogged and HeldJob::Fail. Ignored if no job of that id and unique id is
  // held: a log may still report on a job that was dropped, whose id another job may have by now.
  void OnLogged(const JobId& job, const std::string& unique_id, const ShardKey& shard, Term term,
                Position position);
  void OnLogFailed(const JobId& job, const std::string& unique_id, const absl::Status& status);

 private:
  // Returns the job of a log, or null if it is not held here.
  std::shared_ptr<HeldJob> FindLogged(const JobId& job, const std::string& unique_id) const;
  absl::Status NotHeldLocked(const JobId& job) const ABSL_SHARED_LOCKS_REQUIRED(mutex_);

  mutable absl::Mutex mutex_;
  std::map<JobId, std::shared_ptr<HeldJob>> jobs_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_ENGINE_JOB_HELD_JOBS_H_
