// The part of cuDNN's graph API that convolutions need. It describes one convolution as an
// operation graph, with or without its bias and ReLU, lists the plans that cuDNN offers for it, and
// makes the arguments of a run. ConvolutionPlanner (convolution.h) uses it.
//
// Thread safety: thread-compatible.
#ifndef CAPSTAN_KERNELS_CUDA_PLANS_CUDNN_GRAPH_H_
#define CAPSTAN_KERNELS_CUDA_PLANS_CUDNN_GRAPH_H_

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

// The operands of a convolution in the graph: the image on x's side (x, dx), the weights (weight,
// dweight), and the image on y's side (y, dy).
struct ConvolutionPointers {
  void* x = nullptr;
  void* weight = nullptr;
  void* y = nullptr;
  void* bias = nullptr;  // Fused plans read it: [out_c], fp32. Null if there is none.
  friend bool operator==(const ConvolutionPointers&, const ConvolutionPointers&) = default;
};

// A plan that cuDNN has compiled for one convolution on one card, and the descriptors that it uses.
struct ConvolutionEngine {
  std::shared_ptr<const void> graph;  // All plans for the same graph own it.
  Descriptor config;
  Descriptor plan;
  int64_t workspace_bytes = 0;
  bool is_fused = false;  // It adds the descriptor's bias and applies its ReLU.
  // cuDNN's engine and settings, "engine 34 2=1 5=0" or "fused engine 7 3=1". A name means the same
  // plan within one version of cuDNN. Empty if cuDNN does not report them.
  std::string name;
};

// The part of a descriptor that one plan computes.
enum class Fusion {
  kNone,      // The convolution alone.
  kBiasRelu,  // Also its bias and ReLU; for a forward convolution that has either.
};

// True if `desc` is a forward convolution with a bias, a ReLU or both.
inline bool HasEpilogue(const OpDesc& desc) {
  return desc.kind == OpKind::kConvolutionForward && (desc.has_bias || desc.fuse_relu);
}

// True if a plan with these notes may be taken. It refuses plans whose bits change from run to run,
// and plans with larger errors than the mode allows. In fp32 it refuses tensor cores (TF32) and
// transforms (Winograd, FFT), whose errors exceed 1e-5.
bool Accepts(Compute compute, absl::Span<const cudnnBackendNumericalNote_t> notes);

// A plan that cuDNN offers and that EnginesFor does not accept.
struct RefusedPlan {
  std::string name;
  std::string why;
};

// Returns the plans that cuDNN offers for `desc`, a convolution, and that are accepted: at most
// `count_max`, in cuDNN's order, which puts the one first that it expects to be the best. None
// needs more workspace than the options allow.
// A fused plan holds fp32 between its operations. The caller must check whether its ReLU lets NaN
// pass. Fused plans never include sums over positions: cuDNN compiles these with atomic additions
// of floats, and no note says so.
//   refused  may be null; receives the best plan that was not accepted, if there is one
// REQUIRES: HasEpilogue(desc) for Fusion::kBiasRelu.
// Errors: kUnimplemented  no plan is accepted; kInternal and others of cuDNN.
absl::StatusOr<std::vector<ConvolutionEngine>> EnginesFor(
    cudnnHandle_t handle, const OpDesc& desc, const CudaOptions& options, int count_max,
    Fusion fusion = Fusion::kNone, std::vector<RefusedPlan>* refused = nullptr);

// Returns the plan with this name, if EnginesFor would accept it. Compiles no other plan.
// Errors: kNotFound  there is no such plan; kInternal and others of cuDNN.
absl::StatusOr<ConvolutionEngine> EngineNamed(cudnnHandle_t handle, const OpDesc& desc,
                                              const CudaOptions& options, const std::string& name);

// Makes the argument of one run from its operands and workspace. REQUIRES: all are aligned to 16
// bytes.
absl::StatusOr<Descriptor> PackOf(const ConvolutionPointers& pointers, void* workspace);

}  // namespace capstan::kernels::cuda

#endif  // CAPSTAN_KERNELS_CUDA_PLANS_CUDNN_GRAPH_H_
