// Losses whose labels are numbers, for the CPU backend: squared, Huber, quantile and sigmoid
// cross-entropy.
//
// Thread safety: as Plan.
#ifndef CAPSTAN_KERNELS_CPU_OUTPUT_LOSS_H_
#define CAPSTAN_KERNELS_CPU_OUTPUT_LOSS_H_

#include <memory>

#include "kernels/cpu/cpu_plan.h"

namespace capstan::kernels {

std::unique_ptr<CpuPlan> MakeOutputLossPlan(const OpSignature& signature,
                                            const CpuContext& context);

}  // namespace capstan::kernels

#endif  // CAPSTAN_KERNELS_CPU_OUTPUT_LOSS_H_
