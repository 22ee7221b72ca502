// What stands for plans that cuDNN only compiles where there is a driver: those of a convolution
// with pointwise operations behind it. Without a driver it takes such a graph, and offers nothing
// for it. In its place stands the convolution alone: its plans are the library's own for the same
// card, with their notes, names and workspaces, and run all of the graph.
//
// Thread safety: a stand-in is not changed once it is made.
#ifndef CAPSTAN_KERNELS_CUDA_EMULATION_CUDNN_STAND_IN_H_
#define CAPSTAN_KERNELS_CUDA_EMULATION_CUDNN_STAND_IN_H_

#include <cudnn.h>

#include <memory>
#include <vector>

#include "kernels/cuda/emulation/card.h"
#include "kernels/cuda/emulation/cudnn_records.h"

namespace capstan::kernels::cuda::emulation {

class StandIn {
 public:
  // Null where `graph` is no forward convolution with pointwise operations behind it, or the
  // library does not take that convolution. REQUIRES: Cudnn().failure is empty.
  static std::shared_ptr<const StandIn> Create(const Record& graph, cudnnBackendHeurMode_t mode,
                                               const Card& card);
  ~StandIn();
  StandIn(const StandIn&) = delete;
  StandIn& operator=(const StandIn&) = delete;

  // The library's, finalised.
  cudnnBackendDescriptor_t heuristic() const { return made_.back(); }

 private:
  StandIn() = default;
  // The library's descriptor as `record` has it, but for a convolution's y, where one is given;
  // null where the library refuses.
  cudnnBackendDescriptor_t Copy(const Record& record, const Record* y = nullptr);
  cudnnBackendDescriptor_t Make(cudnnBackendDescriptorType_t type);

  std::vector<cudnnBackendDescriptor_t> made_;  // Parts first.
};

}  // namespace capstan::kernels::cuda::emulation

#endif  // CAPSTAN_KERNELS_CUDA_EMULATION_CUDNN_STAND_IN_H_
