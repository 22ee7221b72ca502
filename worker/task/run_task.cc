#include "worker/task/run_task.h"

#include <grpc/grpc.h>

#include "common/time/clock.h"
#include "worker/task/task.h"

namespace capstan::worker {

int RunTask(const v1::TaskAssignment& assignment, const std::string& scheduler,
            const Credentials* credentials, const std::string& folder,
            const MakeComputation& make) {
  // With the last of its objects gRPC 1.51 shuts down and joins a thread that may sleep for 10 s in
  // poll. Meanwhile the scheduler would take the task, whose work is done, for dead. So it is kept.
  grpc_init();
  const SteadyClock clock;
  Task task(assignment, scheduler, credentials, folder, make, clock);
  return task.Run();
}

}  // namespace capstan::worker
