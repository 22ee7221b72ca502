#include "worker/task/run_task.h"

#include <grpc/grpc.h>

#include "common/time/clock.h"
#include "worker/task/task.h"

namespace capstan::worker {

void RunningTask::GiveUp(const absl::Status& why) {
  absl::MutexLock lock(&mutex_);
  gave_up_.Update(why);
  if (task_ != nullptr && !why.ok()) task_->GiveUp(why);
}

std::string RunningTask::capability() {
  absl::MutexLock lock(&mutex_);
  return task_ == nullptr ? "" : task_->capability();
}

void RunningTask::Set(Task* task) {
  absl::MutexLock lock(&mutex_);
  task_ = task;
  if (task_ != nullptr && !gave_up_.ok()) task_->GiveUp(gave_up_);
}

int RunTask(const v1::TaskAssignment& assignment, const std::string& scheduler,
            const Credentials* credentials, const std::string& folder, const MakeComputation& make,
            RunningTask* running) {
  // gRPC 1.51 shuts down with the last of its objects, and joins a thread that may sleep for 10 s
  // in poll. Meanwhile the scheduler would take the task, whose work is done, for dead. So gRPC is
  // kept.
  grpc_init();
  const SteadyClock clock;
  Task task(assignment, scheduler, credentials, folder, make, clock);
  if (running == nullptr) return task.Run();
  running->Set(&task);
  const int code = task.Run();
  running->Set(nullptr);
  return code;
}

}  // namespace capstan::worker
