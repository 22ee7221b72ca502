// UpdateRecorder: hashes what a task computes, for jobs that record their updates
// (Output.record_updates), and keeps the hashes until the scheduler has them.
//
//   Pulled: hashes the parameters -> Trained: hashes the gradient, adds a record, for each batch of
//   these parameters -> AddTo: into a report -> Reported: the report is answered, they are dropped
//
// Records of a report that got no answer go into the next one, too; the scheduler may have them
// twice. Hashes do not depend on shards, formats of messages or workers.
// Thread safety: AddTo and Reported are for the thread that reports; the others for the thread that
// trains.
// Invariant: at most kRecordsMax records wait; batches beyond them are not recorded.
#ifndef CAPSTAN_WORKER_TASK_COMPUTATION_UPDATE_RECORDER_H_
#define CAPSTAN_WORKER_TASK_COMPUTATION_UPDATE_RECORDER_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/types/job_limits.h"
#include "proto/scheduler.pb.h"
#include "worker/client/messages/message_codec.h"
#include "worker/core/task_board.h"
#include "worker/task/computation/computation.h"

namespace capstan::worker {

class UpdateRecorder {
 public:
  static constexpr size_t kRecordsMax = 100'000;  // Minutes of work without a scheduler.

  // Null if the job does not ask for it.
  static std::unique_ptr<UpdateRecorder> Create(const v1::TaskAssignment& assignment);
  // `job` is its name in the log.
  explicit UpdateRecorder(JobId job) : job_(std::move(job)) {}

  // Hashes the parameters of the next batches. Tables that `halves` has are read from there; it may
  // be null.
  void Pulled(const TableArrays& parameters, const HalfArrays* halves);
  // Adds a record of `gradient`, which was computed for `work` and has the rows of `keys`.
  // REQUIRES: Pulled came before.
  void Trained(const Work& work, const GradientArrays& gradient, const AllTableKeys& keys);

  // Adds the oldest records to the report, of `tables_max` tables at most. Returns true if no other
  // records wait.
  bool AddTo(v1::SyncTaskRequest& request, int tables_max = kTablesReportedMax);
  void Reported();  // The last report has been answered.

 private:
  const JobId job_;                   // Constant after construction.
  std::vector<uint64_t> parameters_;  // By table id. Used by the thread that trains alone.

  absl::Mutex mutex_;
  std::deque<v1::UpdateHashes> waiting_ ABSL_GUARDED_BY(mutex_);
  size_t in_report_ ABSL_GUARDED_BY(mutex_) = 0;  // How many of the first are in the last report.
  bool full_ ABSL_GUARDED_BY(mutex_) = false;     // A record was left out; the log says so.
};

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_TASK_COMPUTATION_UPDATE_RECORDER_H_
