// TaskTrace: when what happened in the first batches of a task: layers, copies, messages, waits.
//
// Written once those batches are done, or the task ends: trace-<rank>-<incarnation>.json in the
// job's output folder (common/observability/trace.h says what shows it).
// Thread safety: Message is thread-safe; the rest is for the thread that trains.
#ifndef CAPSTAN_WORKER_TASK_TASK_TRACE_H_
#define CAPSTAN_WORKER_TASK_TASK_TRACE_H_

#include <atomic>
#include <memory>
#include <string>

#include "common/observability/trace.h"
#include "common/time/clock.h"
#include "common/time/instant.h"
#include "proto/scheduler.pb.h"
#include "worker/core/push_pull_session.h"
#include "worker/training/step_observer.h"

namespace capstan::worker {

class TaskTrace final : public StepObserver {
 public:
  // Null if the job asks for none. `clock` outlives the result.
  static std::unique_ptr<TaskTrace> Create(const v1::TaskAssignment& assignment,
                                           const Clock& clock);
  TaskTrace(std::string path, const v1::TaskAssignment& assignment, const Clock& clock);

  // A batch has been trained: begins the next, or writes the file if it was the last.
  void BatchDone();
  void Write();  // If it has not been written. A file that cannot be written is logged.

  // A message was on its way.
  void Message(const SendMessage& message, Instant begin, Instant end);
  // The task did nothing but wait for what `what` names.
  void Waited(const std::string& what, Instant begin, Instant end);

  bool Watches() override { return writing_; }
  Instant Now() override { return clock_.Now(); }
  void Ran(Part part, const std::string& what, Instant begin, Instant end) override;

 private:
  const std::string path_;
  const std::string job_;
  const Clock& clock_;
  Trace trace_;  // Self-synchronized.
  int batches_left_;
  std::atomic<bool> writing_ = true;  // Spans are still wanted.
};

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_TASK_TASK_TRACE_H_
