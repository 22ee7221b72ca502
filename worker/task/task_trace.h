// TaskTrace: records the times of layers, copies, messages and waits in a task's first batches.
//
// The file trace-<rank>-<incarnation>.json in the job's output folder is written when those batches
// are done, or the task ends (common/observability/trace.h names programs that show it).
// Thread safety: Message is thread-safe; only the thread that trains calls the other methods.
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
#include "worker/training/step/step_observer.h"

namespace capstan::worker {

class TaskTrace final : public StepObserver {
 public:
  // Null if the job asks for none. `clock` outlives the result.
  static std::unique_ptr<TaskTrace> Create(const v1::TaskAssignment& assignment,
                                           const Clock& clock);
  TaskTrace(std::string path, const v1::TaskAssignment& assignment, const Clock& clock);

  // A batch has been trained: writes the file if it was the last one to be traced.
  void BatchDone();
  void Write();  // Writes the file if this was not done yet. Logs an error.

  // Records that a message was on its way.
  void Message(const SendMessage& message, Instant begin, Instant end);
  // Records that the task only waited; `what` names the thing that it waited for.
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
  std::atomic<bool> writing_ = true;  // Spans are still recorded.
};

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_TASK_TASK_TRACE_H_
