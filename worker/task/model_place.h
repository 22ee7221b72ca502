// StageModel: writes a task's model into its folder if this host shares that folder with the
// scheduler's host; else writes it beside the task's own files and sends it from there.
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

// Calls `write`, which writes a model (common/tensor/model_file.h) into the folder that it gets, so
// that the model ends up in `folder` on the scheduler's host. If this host does not share `folder`,
// the model is written into `scratch`, sent, and removed from there. If the scheduler restarts
// meanwhile, the file that it was receiving is sent again.
//   progress  called for "bytes sent"
// Errors: those of `write`, of SchedulerDisk, and of the operating system, with the path.
absl::Status StageModel(SchedulerDisk& scheduler, const std::string& folder,
                        const std::string& scratch, const Progress& progress,
                        const std::function<absl::Status(const std::string& path)>& write);

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_TASK_MODEL_PLACE_H_
