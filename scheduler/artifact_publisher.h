// ArtifactPublisher: publishes the checkpoints and models that servers and tasks have written, and
// removes those that nobody needs any more. The removal includes initial weights and staged models.
//
// Files may be slow, so this is done in a thread of its own and mostly without DurableState's
// mutex. What is published is reported to the core as a step.
//
//   DurableState --FileWork--> [ queue, at most kWorkMax ] --> the thread --step--> DurableState
//
// SchedulerService posts the work of durable steps. JobSubmission excludes removals while it reads
// a manifest. Thread safety: thread-safe, except that one thread calls Start and Stop.
// Invariant: no checkpoint is removed from the reading of its manifest until the job that restores
//            it is submitted and thereby pins it.
#ifndef CAPSTAN_SCHEDULER_ARTIFACT_PUBLISHER_H_
#define CAPSTAN_SCHEDULER_ARTIFACT_PUBLISHER_H_

#include <cstddef>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/storage/posix_disk.h"
#include "scheduler/admission/admission.h"
#include "scheduler/queues/serial_executor.h"
#include "scheduler/state/durable_state.h"
#include "scheduler/state/file_work.h"

namespace capstan::scheduler {

class ArtifactPublisher {
 public:
  static constexpr size_t kWorkMax = 1000;  // Waiting work on checkpoints and models.

  // `state` outlives the publisher.
  ArtifactPublisher(const std::string& data_folder, DurableState* state);

  void Start() { thread_.Start(); }
  // Does all posted work, then ends the thread. Later work is done in the caller's thread.
  void Stop() { thread_.Stop(); }
  // Waits while the queue is full.
  void Post(FileWork work);

  // Removes the initial checkpoints of jobs that ended before they began: a scheduler that was
  // killed may have left them. Those of unknown jobs stay, as the store may be an older copy.
  void RemoveLeftInitialWeights() ABSL_LOCKS_EXCLUDED(state_->mutex());
  // Removes the initial checkpoint of a job that will not restore it any more. No effect if the job
  // began without one.
  void RemoveInitialWeights(const AdmittedJob& job);
  // Held while checkpoints are removed.
  absl::Mutex& removal_mutex() ABSL_LOCK_RETURNED(removal_mutex_) { return removal_mutex_; }

 private:
  void Publish(const CheckpointPublish& publish, const AdmittedJob& job)
      ABSL_LOCKS_EXCLUDED(state_->mutex());
  void Publish(const ModelPublish& publish) ABSL_LOCKS_EXCLUDED(state_->mutex());
  // Removes the initial weights that the job's owner has uploaded for it, if any.
  void RemoveUpload(const AdmittedJob& job);
  void RemoveGivenUpIn(const std::string& folder) ABSL_LOCKS_EXCLUDED(removal_mutex_);
  void RemoveCheckpointsOf(const JobId& job) ABSL_LOCKS_EXCLUDED(state_->mutex(), removal_mutex_);

  const std::string data_folder_;
  DurableState* const state_;
  PosixDisk disk_;
  absl::Mutex removal_mutex_ ABSL_ACQUIRED_BEFORE(state_->mutex());
  SerialExecutor thread_;
};

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_ARTIFACT_PUBLISHER_H_
