// Convolutions: by cuDNN, or by plain loops where it offers no plan; bias, ReLU and the bias
// gradient by own kernels, so that NaN passes through (kernels/README.md).
//
// Thread safety: used by one thread at a time.
#ifndef CAPSTAN_KERNELS_CUDA_CONVOLUTION_H_
#define CAPSTAN_KERNELS_CUDA_CONVOLUTION_H_

#include <map>
#include <memory>

#include "absl/status/statusor.h"
#include "kernels/cuda/cuda_plan.h"
#include "kernels/cuda/cudnn_graph.h"

namespace capstan::kernels::cuda {

class ConvolutionPlanner {
 public:
  explicit ConvolutionPlanner(Device& device) : device_(device) {}  // Outlives planner and plans.

  // REQUIRES: desc.n > 0. The plan that was chosen for a descriptor is kept, up to kChosenMax.
  // Errors: kResourceExhausted  no memory for the workspace; kInternal and others of cuDNN.
  absl::StatusOr<std::unique_ptr<CudaPlan>> Prepare(const OpSignature& signature);

 private:
  static constexpr size_t kChosenMax = 4096;

  // Null: plain loops.
  using Engine = std::shared_ptr<const ConvolutionEngine>;
  absl::StatusOr<Engine> EngineOf(const OpSignature& signature);

  Device& device_;
  std::map<OpDesc, Engine> chosen_;
};

}  // namespace capstan::kernels::cuda

#endif  // CAPSTAN_KERNELS_CUDA_CONVOLUTION_H_
