// Convolution by oneDNN, on NHWC images. Each run reorders the weights into the layout that oneDNN
// asks for, unless that is OHWI.
//
// oneDNN is made for whole vectors of channels: with these it is faster than the tiles of
// convolution.h, otherwise slower (figures: README.md). It may split sums between threads, so the
// bits of a result depend on the thread count.
// Thread safety: as Plan. Sets the OpenMP thread count of the calling thread.
#ifndef CAPSTAN_KERNELS_CPU_ONEDNN_CONVOLUTION_H_
#define CAPSTAN_KERNELS_CPU_ONEDNN_CONVOLUTION_H_

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/cpu/cpu_plan.h"

namespace capstan::kernels {

// True if the backend should use oneDNN for `desc`. The answer depends on the descriptor alone.
bool PrefersOnednn(const OpDesc& desc);

// REQUIRES: the signature is that of a convolution op.
// Errors: kResourceExhausted  not enough memory for scratch.
//         kUnimplemented      oneDNN has no implementation; the message includes oneDNN's message.
absl::StatusOr<std::unique_ptr<CpuPlan>> MakeOnednnConvolutionPlan(const OpSignature& signature,
                                                                   const CpuContext& context);

}  // namespace capstan::kernels

#endif  // CAPSTAN_KERNELS_CPU_ONEDNN_CONVOLUTION_H_
