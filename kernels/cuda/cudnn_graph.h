// cuDNN's graph API, as far as convolutions need it: descriptors that free themselves, one
// convolution as an operation graph, with its bias and ReLU or without, the plans that cuDNN offers
// for it, and how one is run.
//
// Thread safety: thread-compatible.
#ifndef CAPSTAN_KERNELS_CUDA_CUDNN_GRAPH_H_
#define CAPSTAN_KERNELS_CUDA_CUDNN_GRAPH_H_

#include <cudnn.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/op.h"

namespace capstan::kernels::cuda {

struct DescriptorDestroy {
  void operator()(cudnnBackendDescriptor_t descriptor) const {
    cudnnBackendDestroyDescriptor(descriptor);
  }
};
using Descriptor =
    std::unique_ptr<std::remove_pointer_t<cudnnBackendDescriptor_t>, DescriptorDestroy>;

// Operands of a convolution as the graph knows them: the image on x's side (x, dx), the weights
// (weight, dweight), and the image on y's side (y, dy).
struct ConvolutionPointers {
  void* x = nullptr;
  void* weight = nullptr;
  void* y = nullptr;
  void* bias = nullptr;  // Of fused plans; [out_c], fp32. Null: there is none.
  friend bool operator==(const ConvolutionPointers&, const ConvolutionPointers&) = default;
};

// A plan that cuDNN has compiled for one convolution on one card, and what it was made of.
struct ConvolutionEngine {
  std::shared_ptr<const void> graph;  // Shared by the plans that were offered for it.
  Descriptor config;
  Descriptor plan;
  int64_t workspace_bytes = 0;
  bool is_fused = false;  // Adds the descriptor's bias and applies its ReLU.
  // Its engine and its settings, "engine 34 2=1 5=0", or "fused engine 7 3=1": the same for the
  // same version of cuDNN. Empty if they cannot be told.
  std::string name;
};

// What of a descriptor one plan does.
enum class Fusion {
  kNone,      // The convolution.
  kBiasRelu,  // Its bias and ReLU as well; of a forward one that has either.
};

// Whether `desc` is a forward convolution with a bias, a ReLU or both.
inline bool HasEpilogue(const OpDesc& desc) {
  return desc.kind == OpKind::kConvolutionForward && (desc.has_bias || desc.fuse_relu);
}

// Whether a plan with these notes may be taken. None whose bits change from run to run, or that
// loses more than its mode says; in fp32 no tensor cores (TF32) and no transforms (Winograd, FFT),
// whose errors pass 1e-5.
bool Accepts(Compute compute, absl::Span<const cudnnBackendNumericalNote_t> notes);

// A plan that is not taken.
struct RefusedPlan {
  std::string name;
  std::string why;
};

// The plans that cuDNN offers for `desc` (kind: one of the three convolutions), best first by its
// own reckoning; at most `count_max`, none that needs more workspace than the options allow.
// Between its operations a fused plan holds fp32. Whether its ReLU lets NaN pass is for the caller
// to find out. It holds no sum over positions: what cuDNN compiles for those adds floats
// atomically, and no note says so.
//   refused  may be null; the best of those that were not accepted for their notes, if there is one
// REQUIRES: HasEpilogue(desc) for Fusion::kBiasRelu.
// Errors: kUnimplemented  no plan; kInternal and others of cuDNN.
absl::StatusOr<std::vector<ConvolutionEngine>> EnginesFor(
    cudnnHandle_t handle, const OpDesc& desc, const CudaOptions& options, int count_max,
    Fusion fusion = Fusion::kNone, std::vector<RefusedPlan>* refused = nullptr);

// The plan of that name among those; no other is compiled.
// Errors: kNotFound  it is not offered; kInternal and others of cuDNN.
absl::StatusOr<ConvolutionEngine> EngineNamed(cudnnHandle_t handle, const OpDesc& desc,
                                              const CudaOptions& options, const std::string& name);

// Operands and workspace for one run; REQUIRES: all are aligned to 16 bytes.
absl::StatusOr<Descriptor> PackOf(const ConvolutionPointers& pointers, void* workspace);

}  // namespace capstan::kernels::cuda

#endif  // CAPSTAN_KERNELS_CUDA_CUDNN_GRAPH_H_
