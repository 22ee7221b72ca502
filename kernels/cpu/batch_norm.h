// Batch normalisation for the CPU backend. It sums fixed chunks of positions in fp32 and adds the
// chunks in double, so the sums are accurate for any batch and do not depend on the thread count.
//
// Thread safety: as Plan.
#ifndef CAPSTAN_KERNELS_CPU_BATCH_NORM_H_
#define CAPSTAN_KERNELS_CPU_BATCH_NORM_H_

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/cpu/cpu_plan.h"

namespace capstan::kernels {

// REQUIRES: the signature is that of a batch-norm op.
// Errors: kResourceExhausted  not enough memory for scratch.
absl::StatusOr<std::unique_ptr<CpuPlan>> MakeBatchNormPlan(const OpSignature& signature,
                                                           const CpuContext& context);

}  // namespace capstan::kernels

#endif  // CAPSTAN_KERNELS_CPU_BATCH_NORM_H_
