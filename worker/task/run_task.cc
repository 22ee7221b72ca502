#include "worker/task/run_task.h"

#include "common/time/clock.h"
#include "worker/task/task.h"

namespace capstan::worker {

int RunTask(const v1::TaskAssignment& assignment, const std::string& scheduler,
            const Credentials* credentials, const std::string& folder,
            const MakeComputation& make) {
  const SteadyClock clock;
  Task task(assignment, scheduler, credentials, folder, make, clock);
  return task.Run();
}

}  // namespace capstan::worker
