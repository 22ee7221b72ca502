// Convolution by oneDNN, on NHWC images. Weights are reordered at each run into the layout that
// oneDNN asks for, where that is not OHWI.
//
// oneDNN is compiled for whole vectors of channels: there it beats the tiles of convolution.h,
// elsewhere it is slower (figures: README.md). Its sums may be split between threads, so the thread
// count is part of what decides the bits.
// Thread safety: as Plan. Sets the OpenMP thread count of the calling thread.
#ifndef CAPSTAN_KERNELS_CPU_ONEDNN_CONVOLUTION_H_
#define CAPSTAN_KERNELS_CPU_ONEDNN_CONVOLUTION_H_

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/cpu/cpu_plan.h"

namespace capstan::kernels {

// Whether oneDNN is the one to take: a rule of the descriptor alone.
bool PrefersOnednn(const OpDesc& desc);

// REQUIRES: signature is of a convolution op.
// Errors: kResourceExhausted  no memory for scratch.
//         kUnimplemented      oneDNN has no implementation; the message carries its own.
absl::StatusOr<std::unique_ptr<CpuPlan>> MakeOnednnConvolutionPlan(const OpSignature& signature,
                                                                   const CpuContext& context);

}  // namespace capstan::kernels

#endif  // CAPSTAN_KERNELS_CPU_ONEDNN_CONVOLUTION_H_
