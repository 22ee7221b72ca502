// FileWork: the work on checkpoints, models and initial weights that one step of the core leaves.
// It begins when the step is durable. DurableState collects it, ArtifactPublisher does it.
//
// Thread safety: values.
#ifndef CAPSTAN_SCHEDULER_STATE_FILE_WORK_H_
#define CAPSTAN_SCHEDULER_STATE_FILE_WORK_H_

#include <memory>
#include <string>
#include <vector>

#include "common/types/ids.h"
#include "scheduler/admission/admission.h"
#include "scheduler/core/checkpoints/checkpoints.h"
#include "scheduler/core/messages/messages.h"

namespace capstan::scheduler {

struct FileWork {
  struct Manifest {
    CheckpointPublish publish;
    std::shared_ptr<const AdmittedJob> job;  // Shared with DurableState; immutable.
  };
  // The output folder of an ended job whose tasks are gone. The tasks up to `last_incarnation` may
  // have left staged models there.
  struct Left {
    std::string folder;
    Incarnation last_incarnation;
  };
  std::vector<Manifest> manifests;
  std::vector<std::string> given_up;  // Folders of checkpoints that can never become complete.
  std::vector<JobId> removals;        // Jobs whose older checkpoints may be removed.
  std::vector<ModelPublish> models;
  // Ended jobs whose initial checkpoint no task or server can read any more.
  std::vector<std::shared_ptr<const AdmittedJob>> over;
  std::vector<Left> left;
};

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_STATE_FILE_WORK_H_
