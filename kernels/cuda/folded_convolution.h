// FoldedConvolution: a convolution of stride 2 with few channels, in bf16 or fp16, by the plan of
// one of stride 1 with more (fold_kernels.h).
//
// Thread safety: as Plan.
#ifndef CAPSTAN_KERNELS_CUDA_FOLDED_CONVOLUTION_H_
#define CAPSTAN_KERNELS_CUDA_FOLDED_CONVOLUTION_H_

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "kernels/cuda/cuda_plan.h"
#include "kernels/cuda/fold_kernels.h"
#include "kernels/op_check.h"

namespace capstan::kernels::cuda {

// The op that computes it, with the types of `signature`. None where it is not to be folded: it has
// no stride of 2, its channels are many, it is the gradient of images, which begin no network, or
// in fp32; or what is folded would take more than kSureWorkspaceBytesMax.
std::optional<OpSignature> FoldedSignature(const OpSignature& signature);

class FoldedConvolution final : public CudaPlan {
 public:
  // `inner` is a plan for FoldedSignature(signature), which takes inner_bytes of the workspace.
  FoldedConvolution(const OpSignature& signature, Device& device, std::unique_ptr<CudaPlan> inner,
                    int64_t inner_bytes);

  int64_t WorkspaceBytes() const;
  absl::Status Execute(Views in, Views out, const RunOptions& options) override;

 private:
  absl::Status Forward(Views in, Views out, const RunOptions& options);
  absl::Status BackwardWeights(Views in, Views out, const RunOptions& options);
  absl::Status FoldImages(const TensorView& x);
  // Operands of the inner plan in the workspace: its images, and its weights or their gradient.
  TensorView FoldedImages() const;
  TensorView FoldedWeights() const;

  const FoldArgs fold_;
  const std::unique_ptr<CudaPlan> inner_;
  const int64_t x_at_, weight_at_;
};

}  // namespace capstan::kernels::cuda

#endif  // CAPSTAN_KERNELS_CUDA_FOLDED_CONVOLUTION_H_
