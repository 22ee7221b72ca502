// cuDNN's graph API, as far as convolutions need it: descriptors that free themselves, one
// convolution as an operation graph, the plans that cuDNN offers for it, and how one is run.
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
  friend bool operator==(const ConvolutionPointers&, const ConvolutionPointers&) = default;
};

// A plan that cuDNN has compiled for one convolution on one card, and what it was made of.
struct ConvolutionEngine {
  std::shared_ptr<const void> graph;  // Shared by the plans that were offered for it.
  Descriptor config;
  Descriptor plan;
  int64_t workspace_bytes = 0;
  // Its engine and its settings, "engine 34 2=1 5=0": the same for the same version of cuDNN. Empty
  // if they cannot be told.
  std::string name;
};

// Whether a plan with these notes may be taken. None whose bits change from run to run, or that
// loses more than its mode says; in fp32 no tensor cores (TF32) and no transforms (Winograd, FFT),
// whose errors pass 1e-5.
bool Accepts(Compute compute, absl::Span<const cudnnBackendNumericalNote_t> notes);

// The plans that cuDNN offers for `desc` (kind: one of the three convolutions), best first by its
// own reckoning; at most `count_max`, none that needs more workspace than the options allow. If the
// plan `wanted` is among them, only that one, and no other is compiled for it.
// Errors: kUnimplemented  no plan; kInternal and others of cuDNN.
absl::StatusOr<std::vector<ConvolutionEngine>> EnginesFor(cudnnHandle_t handle, const OpDesc& desc,
                                                          const CudaOptions& options, int count_max,
                                                          const std::string& wanted = "");

// Operands and workspace for one run; REQUIRES: all are aligned to 16 bytes.
absl::StatusOr<Descriptor> PackOf(const ConvolutionPointers& pointers, void* workspace);

}  // namespace capstan::kernels::cuda

#endif  // CAPSTAN_KERNELS_CUDA_CUDNN_GRAPH_H_
