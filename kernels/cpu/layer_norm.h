// Layer normalisation for the CPU backend: each position's channels by themselves, in fp32. The
// gradients of scale and shift are sums over fixed chunks of positions, which are added in double,
// so that they do not depend on the thread count.
//
// Thread safety: as Plan.
#ifndef CAPSTAN_KERNELS_CPU_LAYER_NORM_H_
#define CAPSTAN_KERNELS_CPU_LAYER_NORM_H_

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/cpu/cpu_plan.h"

namespace capstan::kernels {

// REQUIRES: the signature is that of a layer-norm op.
// Errors: kResourceExhausted  not enough memory for scratch.
absl::StatusOr<std::unique_ptr<CpuPlan>> MakeLayerNormPlan(const OpSignature& signature,
                                                           const CpuContext& context);

}  // namespace capstan::kernels

#endif  // CAPSTAN_KERNELS_CPU_LAYER_NORM_H_
