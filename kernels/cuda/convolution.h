// Convolutions: by cuDNN, or by plain loops where it offers no plan. Bias and ReLU by an own kernel
// behind it, or, where that was measured to be faster, in cuDNN's plan; the bias gradient by own
// kernels. Of few channels and stride 2, in bf16 and fp16, folded into one of stride 1
// (folded_convolution.h). NaN passes through all of them (kernels/README.md).
//
// Thread safety: used by one thread at a time.
#ifndef CAPSTAN_KERNELS_CUDA_CONVOLUTION_H_
#define CAPSTAN_KERNELS_CUDA_CONVOLUTION_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/cuda/cuda_plan.h"
#include "kernels/cuda/cudnn_graph.h"

namespace capstan::kernels::cuda {

class ConvolutionPlanner {
 public:
  explicit ConvolutionPlanner(Device& device) : device_(device) {}  // Outlives planner and plans.

  // REQUIRES: desc.n > 0. The plan that was chosen for a descriptor is kept, up to kChosenMax.
  //
  // kMeasured: where there is no memory for its workspace, it is given up for that of the offered
  // ones that needs least, and that is told (CudaOptions::say). kHeuristic has no other one, since
  // its bits must not depend on what memory is left; it takes none of more than
  // kSureWorkspaceBytesMax.
  // Errors: kResourceExhausted  no memory for the workspace; kInternal and others of cuDNN.
  absl::StatusOr<std::unique_ptr<CudaPlan>> Prepare(const OpSignature& signature);

 private:
  struct Prepared {
    std::unique_ptr<CudaPlan> plan;
    int64_t workspace_bytes = 0;  // Which are reserved.
  };
  // As it is described, and folded (folded_convolution.h).
  absl::StatusOr<Prepared> PrepareDirect(const OpSignature& signature);
  absl::StatusOr<std::unique_ptr<CudaPlan>> PrepareFolded(const OpSignature& signature,
                                                          const OpSignature& folded);

  static constexpr size_t kChosenMax = 4096;

  // Null: plain loops.
  using Engine = std::shared_ptr<const ConvolutionEngine>;
  absl::StatusOr<Engine> EngineOf(const OpSignature& signature);
  // All that there is to choose from; no engines: plain loops.
  struct Offer {
    std::vector<ConvolutionEngine> engines;
    std::vector<RefusedPlan> refused;  // The best one, or none.
  };
  absl::StatusOr<Offer> Offered(const OpDesc& desc);
  // The index of the fastest, which is kept under `key`; the first where none can be timed.
  absl::StatusOr<int> Measured(const OpSignature& signature, const std::string& key,
                               const Offer& offer);
  // In place of one that there is no memory for. Errors: kUnimplemented  none needs less.
  absl::StatusOr<Engine> SmallerThan(const ConvolutionEngine& engine, const OpDesc& desc);

  Device& device_;
  std::map<OpDesc, Engine> chosen_;
};

}  // namespace capstan::kernels::cuda

#endif  // CAPSTAN_KERNELS_CUDA_CONVOLUTION_H_
