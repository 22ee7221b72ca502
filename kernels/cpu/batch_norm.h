// Batch normalisation. Sums run over fixed chunks of positions in fp32 and over chunks in double,
// so they are accurate for any batch and do not depend on the thread count.
//
// Thread safety: as Plan.
#ifndef CAPSTAN_KERNELS_CPU_BATCH_NORM_H_
#define CAPSTAN_KERNELS_CPU_BATCH_NORM_H_

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/cpu/cpu_plan.h"

namespace capstan::kernels {

// REQUIRES: signature is of a batch-norm op. Errors: kResourceExhausted  no memory for scratch.
absl::StatusOr<std::unique_ptr<CpuPlan>> MakeBatchNormPlan(const OpSignature& signature,
                                                           const CpuContext& context);

}  // namespace capstan::kernels

#endif  // CAPSTAN_KERNELS_CPU_BATCH_NORM_H_
