// StepExchange: moves the parameters of a step to the members that compute it, and their gradient
// back, part by part.
//
//   host ──► member 0 ──broadcast──► all: steps ──reduce──► member 0 ──► host
//
// If there is one member nothing is broadcast or reduced. The parameters are copied to the first
// device once, and one gradient, the sum of all, comes back; both run in parallel with the steps of
// other parts.
// Thread safety: used by one thread at a time.
#ifndef CAPSTAN_WORKER_TRAINING_STEP_STEP_EXCHANGE_H_
#define CAPSTAN_WORKER_TRAINING_STEP_STEP_EXCHANGE_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "kernels/collective.h"
#include "worker/training/step/step_memory.h"

namespace capstan::worker {

class StepExchange {
 public:
  // All are borrowed. `collective` joins the devices of `members`; null if there is one member.
  StepExchange(std::vector<StepMemory*> members, kernels::Collective* collective,
               int64_t parameter_count);

  // Begins a step. kSame: the devices have its parameters already.
  void Begin(Parameters which);

  // Steps that are run from now on may read parameters below `end`, which increases.
  absl::Status NeedParameters(int64_t end);
  // Steps that have been run give the gradient from `first` on, which decreases.
  absl::Status GradientDone(int64_t first);

 private:
  std::vector<float*> Arrays(Place place, int64_t begin) const;

  const std::vector<StepMemory*> members_;
  kernels::Collective* const collective_;
  const int64_t parameter_count_;
  int64_t uploaded_end_ = 0;   // Parameters below this are on the devices, or on their way.
  int64_t gradient_from_ = 0;  // Gradient elements from here on are on their way.
};

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_TRAINING_STEP_STEP_EXCHANGE_H_
