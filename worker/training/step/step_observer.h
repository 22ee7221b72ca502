// StepObserver: receives the times at which the layers and copies of a training step ran, for
// traces.
//
// Thread safety: the thread that trains calls it.
#ifndef CAPSTAN_WORKER_TRAINING_STEP_STEP_OBSERVER_H_
#define CAPSTAN_WORKER_TRAINING_STEP_STEP_OBSERVER_H_

#include <string>

#include "common/time/instant.h"

namespace capstan::worker {

class StepObserver {
 public:
  enum class Part { kForward, kBackward, kUpload, kDownload };

  virtual ~StepObserver() = default;
  // Called when a step begins: true if the step is to be watched. Watching costs a device time.
  virtual bool Watches() = 0;
  virtual Instant Now() = 0;
  // `what`: layers, or elements of a table. For a device it is called after the step has ended.
  virtual void Ran(Part part, const std::string& what, Instant begin, Instant end) = 0;
};

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_TRAINING_STEP_STEP_OBSERVER_H_
