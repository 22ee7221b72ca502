// EventRecorder: turns the core's events into log lines and into the files of the jobs.
//
// Thread safety: thread-compatible; the service's output thread calls it.
#ifndef CAPSTAN_SCHEDULER_EVENT_RECORDER_H_
#define CAPSTAN_SCHEDULER_EVENT_RECORDER_H_

#include <memory>

#include "absl/container/btree_map.h"
#include "common/types/ids.h"
#include "proto/scheduler.pb.h"
#include "scheduler/admission.h"
#include "scheduler/core/events.h"
#include "scheduler/job_output.h"

namespace capstan::scheduler {

// An event, and what the files need beside it.
struct RecordedEvent {
  Event event;
  int64_t unix_ms = 0;
  std::shared_ptr<const AdmittedJob>
      job;  // Of events about a job. Shared with the service; immutable.
  std::shared_ptr<const v1::JobStatus> status;  // JobStarted and JobEnded: at that moment.
};

class EventRecorder {
 public:
  // Writes a log line and what belongs into the job's files. A file that cannot be written is
  // logged.
  void Record(const RecordedEvent& recorded);
  // `job` ended with `status` in an earlier scheduler's time: writes what that did not get to.
  void Complete(const AdmittedJob& job, const v1::JobStatus& status);

 private:
  void WriteFiles(const RecordedEvent& recorded);
  JobOutput* OutputOf(const AdmittedJob& job);  // Null: its files cannot be opened.

  absl::btree_map<JobId, std::unique_ptr<JobOutput>> outputs_;  // Of running jobs.
};

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_EVENT_RECORDER_H_
