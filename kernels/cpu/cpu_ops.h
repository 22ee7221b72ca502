// CpuOp: an op that the CPU backend has, and the function that makes its plan. Each file that
// computes ops has a table of them, which CpuBackend reads. Those of convolutions are in
// cpu_backend.cc.
//
// Thread safety: pure functions.
#ifndef CAPSTAN_KERNELS_CPU_CPU_OPS_H_
#define CAPSTAN_KERNELS_CPU_CPU_OPS_H_

#include <memory>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/cpu/cpu_plan.h"
#include "kernels/op.h"

namespace capstan::kernels {

struct CpuOp {
  OpKind kind;
  // Errors: those of the plan's Init.
  absl::StatusOr<std::unique_ptr<CpuPlan>> (*make)(const OpSignature& signature,
                                                   const CpuContext& context);
};

absl::Span<const CpuOp> BatchNormOps();
absl::Span<const CpuOp> FullyConnectedOps();
absl::Span<const CpuOp> LayerNormOps();   // RMS normalisation, too.
absl::Span<const CpuOp> OutputLossOps();  // Losses whose labels are numbers.
absl::Span<const CpuOp> SimpleOps();      // Element-wise, pools, softmax cross-entropy, embedding.

}  // namespace capstan::kernels

#endif  // CAPSTAN_KERNELS_CPU_CPU_OPS_H_
