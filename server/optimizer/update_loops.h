// UpdateLoops: the vectorised loops behind Apply, one compiled form for each instruction set.
//
// One source, compiled for the baseline CPU, AVX2 and AVX-512; the arithmetic is element-wise and
// never fused, so all forms give the same bits. Chosen at run time by a plain call rather than by
// an ifunc (target_clones), so that a test can run each form and sanitizers work.
// Thread safety: pure functions.
#ifndef CAPSTAN_SERVER_OPTIMIZER_UPDATE_LOOPS_H_
#define CAPSTAN_SERVER_OPTIMIZER_UPDATE_LOOPS_H_

#include <cstdint>

#include "absl/types/span.h"
#include "common/types/instruction_set.h"
#include "common/types/unaligned_float.h"
#include "server/optimizer/config/optimizer_config.h"

namespace capstan::server {

// Apply (optimizer.h) with the form for `set`. REQUIRES: IsSupported(set).
void ApplyWith(InstructionSet set, const OptimizerConfig& config, int64_t step, int64_t n,
               const float* in, const UnalignedFloat* gradient, absl::Span<float* const> state,
               float* out);

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_OPTIMIZER_UPDATE_LOOPS_H_
