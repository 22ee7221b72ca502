// Ops of the CPU backend that are single passes over memory: element-wise ops, pools, softmax
// cross-entropy and embeddings. All but softmax and embedding's forward op use the loops of Simd.
//
// Thread safety: as Plan.
#ifndef CAPSTAN_KERNELS_CPU_SIMPLE_OPS_H_
#define CAPSTAN_KERNELS_CPU_SIMPLE_OPS_H_

#include <memory>

#include "kernels/cpu/cpu_plan.h"

namespace capstan::kernels {

std::unique_ptr<CpuPlan> MakeElementwisePlan(const OpSignature& signature,
                                             const CpuContext& context);
std::unique_ptr<CpuPlan> MakePoolPlan(const OpSignature& signature, const CpuContext& context);
std::unique_ptr<CpuPlan> MakeSoftmaxPlan(const OpSignature& signature, const CpuContext& context);
std::unique_ptr<CpuPlan> MakeEmbeddingPlan(const OpSignature& signature, const CpuContext& context);

}  // namespace capstan::kernels

#endif  // CAPSTAN_KERNELS_CPU_SIMPLE_OPS_H_
