#include "worker/task/run_task.h"

#include <grpc/grpc.h>

#include <utility>

#include "common/time/clock.h"
#include "worker/task/task.h"

namespace capstan::worker {

void TaskEnder::GiveUp(const absl::Status& why) {
  absl::MutexLock lock(&mutex_);
  if (give_up_ != nullptr && !why.ok()) give_up_(why);
}

void TaskEnder::Set(std::function<void(const absl::Status&)> give_up) {
  absl::MutexLock lock(&mutex_);
  give_up_ = std::move(give_up);
}

int RunTask(const v1::TaskAssignment& assignment, const std::string& scheduler,
            const Credentials* credentials, const std::string& folder,
            const MakeComputation& make, TaskEnder* ender) {
  // With the last of its objects gRPC 1.51 shuts down and joins a thread that may sleep for 10 s in
  // poll. Meanwhile the scheduler would take the task, whose work is done, for dead. So it is kept.
  grpc_init();
  const SteadyClock clock;
  Task task(assignment, scheduler, credentials, folder, make, clock);
  if (ender == nullptr) return task.Run();
  ender->Set([&task](const absl::Status& why) { task.GiveUp(why); });
  const int code = task.Run();
  ender->Set(nullptr);
  return code;
}

}  // namespace capstan::worker
