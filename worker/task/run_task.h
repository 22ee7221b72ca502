// RunTask: runs one worker task process, from its assignment to its exit code.
#ifndef CAPSTAN_WORKER_TASK_RUN_TASK_H_
#define CAPSTAN_WORKER_TASK_RUN_TASK_H_

#include <string>

#include "common/net/credentials.h"
#include "proto/scheduler.pb.h"
#include "worker/task/computation.h"

namespace capstan::worker {

// Trains, evaluates and exports as the scheduler at `scheduler` (host:port) says, until it says
// FINISH. `folder` has the task's own files. `make` makes what computes. Returns the process's exit
// code: 0: the task is done, or was told to stop (fenced off); 1: it failed and has told the
// scheduler why; 3: it failed and could not tell the scheduler. Null credentials: plain text.
int RunTask(const v1::TaskAssignment& assignment, const std::string& scheduler,
            const Credentials* credentials, const std::string& folder, const MakeComputation& make);

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_TASK_RUN_TASK_H_
