// Where a task writes a model: into the folder that it is for where this host shares it with the
// scheduler's, else beside its own files, from where it is sent.
//
// Thread safety: a function of its arguments and of the files.
#ifndef CAPSTAN_WORKER_TASK_MODEL_PLACE_H_
#define CAPSTAN_WORKER_TASK_MODEL_PLACE_H_

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "common/job_files/scheduler_disk.h"
#include "common/types/progress.h"

namespace capstan::worker {

// Has `write` write a model (common/tensor/model_file.h) into the folder that it is given, and sees
// to it that it then lies in `folder` of the scheduler's host: is that another folder than the one
// of this host, the model is written into `scratch`, sent, and removed from there. A scheduler that
// starts again meanwhile gets the file that it was receiving anew.
//   progress  told of "bytes sent"
// Errors: those of `write`, of SchedulerDisk, and of the operating system, with the path.
absl::Status StageModel(SchedulerDisk& scheduler, const std::string& folder,
                        const std::string& scratch, const Progress& progress,
                        const std::function<absl::Status(const std::string& path)>& write);

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_TASK_MODEL_PLACE_H_
