// EventRecorder: writes the core's events to the log and to the output files of the jobs.
//
// Thread safety: thread-compatible; DurableState's output thread calls it.
#ifndef CAPSTAN_SCHEDULER_OUTPUT_EVENT_RECORDER_H_
#define CAPSTAN_SCHEDULER_OUTPUT_EVENT_RECORDER_H_

#include <map>
#include <memory>

#include "common/types/ids.h"
#include "proto/scheduler.pb.h"
#include "scheduler/admission/admission.h"
#include "scheduler/core/messages/events.h"
#include "scheduler/output/job_output.h"

namespace capstan::scheduler {

// An event, with the data that the jobs' files need.
struct RecordedEvent {
  Event event;
  int64_t unix_ms = 0;
  std::shared_ptr<const AdmittedJob>
      job;  // The job of the event, null if none. Shared with DurableState; immutable.
  // The status at that moment. Only for JobStarted, JobAdopted and JobEnded.
  std::shared_ptr<const v1::JobStatus> status;
};

class EventRecorder {
 public:
  // Writes a log line, and updates the job's files. An error of a file becomes a line in the log.
  void Record(const RecordedEvent& recorded);
  // Writes the files that an earlier scheduler did not write before it died, though `job` had ended
  // with `status`.
  void Complete(const AdmittedJob& job, const v1::JobStatus& status);

 private:
  void WriteFiles(const RecordedEvent& recorded);
  JobOutput* OutputOf(const AdmittedJob& job);  // Null: its files cannot be opened.

  std::map<JobId, std::unique_ptr<JobOutput>> outputs_;  // Running jobs only.
};

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_OUTPUT_EVENT_RECORDER_H_
