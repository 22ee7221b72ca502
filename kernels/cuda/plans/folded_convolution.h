// FoldedConvolution: the plan of a convolution of stride 2 with few channels, in bf16 or fp16. It
// runs the plan of a convolution of stride 1 with more channels (fold_kernels.h), which is faster.
//
// Thread safety: as Plan.
#ifndef CAPSTAN_KERNELS_CUDA_PLANS_FOLDED_CONVOLUTION_H_
#define CAPSTAN_KERNELS_CUDA_PLANS_FOLDED_CONVOLUTION_H_

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "kernels/cuda/own/fold_kernels.h"
#include "kernels/cuda/plans/cuda_plan.h"
#include "kernels/op_check.h"

namespace capstan::kernels::cuda {

// Returns the folded op that computes `signature`, with the same types. None if the op should not
// be folded: its stride is not 2, its kernel is not wider than the stride, it has more than
// kFoldedChannelsMax channels, it computes the gradient of images (a network's first layer needs
// none), its type is fp32, or the folded images would need more than kSureWorkspaceBytesMax.
std::optional<OpSignature> FoldedSignature(const OpSignature& signature);

class FoldedConvolution final : public CudaPlan {
 public:
  // `inner` is a plan for FoldedSignature(signature), which uses inner_bytes of the workspace.
  FoldedConvolution(const OpSignature& signature, Device& device, std::unique_ptr<CudaPlan> inner,
                    int64_t inner_bytes);

  int64_t WorkspaceBytes() const;
  absl::Status Execute(Views in, Views out, const RunOptions& options) override;

 private:
  absl::Status Forward(Views in, Views out, const RunOptions& options);
  absl::Status BackwardWeights(Views in, Views out, const RunOptions& options);
  absl::Status FoldImages(const TensorView& x);
  // The operands of the inner plan, in the workspace: its images, and its weights or their
  // gradient.
  TensorView FoldedImages() const;
  TensorView FoldedWeights() const;

  const FoldArgs fold_;
  const std::unique_ptr<CudaPlan> inner_;
  const int64_t x_at_, weight_at_;
};

}  // namespace capstan::kernels::cuda

#endif  // CAPSTAN_KERNELS_CUDA_PLANS_FOLDED_CONVOLUTION_H_
