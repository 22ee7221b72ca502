// RunTask: the life of one worker task process, from its assignment to its exit code.
#ifndef CAPSTAN_WORKER_TASK_RUN_TASK_H_
#define CAPSTAN_WORKER_TASK_RUN_TASK_H_

#include <string>

#include "proto/scheduler.pb.h"

namespace capstan::worker {

// Trains, evaluates and exports as the scheduler at `scheduler` (host:port) says, until it says
// FINISH. `folder` has the task's own files. Returns the process's exit code: 0 done, or told to
// stop (fenced off); 1 it failed and the scheduler knows why; 3 it failed and the scheduler could
// not be told.
int RunTask(const v1::TaskAssignment& assignment, const std::string& scheduler,
            const std::string& folder);

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_TASK_RUN_TASK_H_
