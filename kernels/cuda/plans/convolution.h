// ConvolutionPlanner: prepares convolutions for the CUDA backend. cuDNN computes them, or plain
// loops (convolution_kernels.h) if cuDNN offers no plan. An own kernel adds bias and ReLU
// afterwards, unless a cuDNN plan that includes them was measured to be faster; own kernels compute
// the bias gradient. In bf16 and fp16, a convolution with few channels and stride 2 is folded into
// one of stride 1 (folded_convolution.h). NaN passes through all of them (kernels/README.md).
//
// Thread safety: one thread at a time uses it.
#ifndef CAPSTAN_KERNELS_CUDA_PLANS_CONVOLUTION_H_
#define CAPSTAN_KERNELS_CUDA_PLANS_CONVOLUTION_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/cuda/plans/cuda_plan.h"
#include "kernels/cuda/plans/cudnn_graph.h"

namespace capstan::kernels::cuda {

class ConvolutionPlanner {
 public:
  // `device` outlives the planner and its plans.
  explicit ConvolutionPlanner(Device& device) : device_(device) {}

  // Prepares a convolution. Remembers the plan that it chose for a descriptor, for up to kChosenMax
  // descriptors. REQUIRES: desc.n > 0.
  //
  // PlanChoice::kMeasured: if there is not enough memory for the plan's workspace, it takes the
  // offered plan that needs the least instead, and reports that (CudaOptions::say).
  // PlanChoice::kHeuristic has no second choice, since its bits must not depend on the free memory;
  // it takes no plan that needs more than kSureWorkspaceBytesMax.
  // Errors: kResourceExhausted  not enough memory for the workspace.
  //         else                kInternal and others of cuDNN.
  absl::StatusOr<std::unique_ptr<CudaPlan>> Prepare(const OpSignature& signature);

 private:
  struct Prepared {
    std::unique_ptr<CudaPlan> plan;
    int64_t workspace_bytes = 0;  // Already reserved.
  };
  // Prepare the op directly, or folded (folded_convolution.h).
  absl::StatusOr<Prepared> PrepareDirect(const OpSignature& signature);
  absl::StatusOr<std::unique_ptr<CudaPlan>> PrepareFolded(const OpSignature& signature,
                                                          const OpSignature& folded);

  static constexpr size_t kChosenMax = 4096;

  // Null means plain loops.
  using Engine = std::shared_ptr<const ConvolutionEngine>;
  absl::StatusOr<Engine> EngineOf(const OpSignature& signature);
  // The plans to choose from. No engines means plain loops.
  struct Offer {
    std::vector<ConvolutionEngine> engines;
    std::vector<RefusedPlan> refused;  // The best refused plan, or none.
  };
  absl::StatusOr<Offer> Offered(const OpDesc& desc);
  // Returns the index of the fastest engine and keeps it under `key`. Returns 0 if there is not
  // enough memory to time them.
  absl::StatusOr<int> Measured(const OpSignature& signature, const std::string& key,
                               const Offer& offer);
  // Returns the engine that needs the least workspace, to replace one that needs more than there
  // is. Errors: kUnimplemented  no engine needs less.
  absl::StatusOr<Engine> SmallerThan(const ConvolutionEngine& engine, const OpDesc& desc);

  Device& device_;
  std::map<OpDesc, Engine> chosen_;
};

}  // namespace capstan::kernels::cuda

#endif  // CAPSTAN_KERNELS_CUDA_PLANS_CONVOLUTION_H_
