// StandIn: replaces a graph whose plans cuDNN compiles only on a machine with a driver, that is, a
// convolution followed by pointwise operations. Without a driver cuDNN accepts such a graph, but
// offers no plans for it. The stand-in is the convolution alone. Its plans are the library's own
// for the same card, with their notes, names and workspaces; the emulation runs the whole graph for
// them.
//
// Thread safety: a stand-in does not change once it is made.
#ifndef CAPSTAN_KERNELS_CUDA_EMULATION_LIBRARIES_CUDNN_STAND_IN_H_
#define CAPSTAN_KERNELS_CUDA_EMULATION_LIBRARIES_CUDNN_STAND_IN_H_

#include <cudnn.h>

#include <memory>
#include <vector>

#include "kernels/cuda/emulation/card.h"
#include "kernels/cuda/emulation/libraries/cudnn_records.h"

namespace capstan::kernels::cuda::emulation {

class StandIn {
 public:
  // Returns null if `graph` is no forward convolution followed by pointwise operations, or if the
  // library does not accept that convolution. REQUIRES: Cudnn().failure is empty.
  static std::shared_ptr<const StandIn> Create(const Record& graph, cudnnBackendHeurMode_t mode,
                                               const Card& card);
  ~StandIn();
  StandIn(const StandIn&) = delete;
  StandIn& operator=(const StandIn&) = delete;

  // The library's heuristic for the convolution alone, finalised.
  cudnnBackendDescriptor_t heuristic() const { return made_.back(); }

 private:
  StandIn() = default;
  // Makes the library's descriptor with the attributes of `record`. If `y` is not null, it replaces
  // a convolution's y. Null if the library refuses.
  cudnnBackendDescriptor_t Copy(const Record& record, const Record* y = nullptr);
  cudnnBackendDescriptor_t Make(cudnnBackendDescriptorType_t type);

  std::vector<cudnnBackendDescriptor_t> made_;  // Parts come before the whole.
};

}  // namespace capstan::kernels::cuda::emulation

#endif  // CAPSTAN_KERNELS_CUDA_EMULATION_LIBRARIES_CUDNN_STAND_IN_H_
