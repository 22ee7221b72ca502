// Fully connected layers for the CPU backend, as matrix products over register tiles.
//
// Thread safety: as Plan.
#ifndef CAPSTAN_KERNELS_CPU_FULLY_CONNECTED_H_
#define CAPSTAN_KERNELS_CPU_FULLY_CONNECTED_H_

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/cpu/cpu_plan.h"

namespace capstan::kernels {

// REQUIRES: the signature is that of a fully connected op.
// Errors: kResourceExhausted  not enough memory for scratch.
absl::StatusOr<std::unique_ptr<CpuPlan>> MakeFullyConnectedPlan(const OpSignature& signature,
                                                                const CpuContext& context);

}  // namespace capstan::kernels

#endif  // CAPSTAN_KERNELS_CPU_FULLY_CONNECTED_H_
