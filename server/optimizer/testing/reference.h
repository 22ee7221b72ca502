// ApplyReference: the specification of every update rule, as naive loops in fp32.
//
// Each line of reference.cc is one line of the table in README.md, in the same order of operations;
// every operation rounds to fp32 and none is fused (compiled with -ffp-contract=off).
// Apply (optimizer.h) must give the same bits; PyTorch's results (testdata/) are the same up to
// rounding. Thread safety: a pure function.
#ifndef CAPSTAN_SERVER_OPTIMIZER_TESTING_REFERENCE_H_
#define CAPSTAN_SERVER_OPTIMIZER_TESTING_REFERENCE_H_

#include <cstdint>

#include "absl/types/span.h"
#include "server/optimizer/config/optimizer_config.h"

namespace capstan::server {

// Same arguments, effect and requirements as Apply in optimizer.h; also REQUIRES: the rule is not a
// plugin's. If it is layer-wise, the elements are a whole tensor, and its trust ratio is part of
// the update.
void ApplyReference(const OptimizerConfig& config, int64_t step, int64_t n, const float* in,
                    const float* gradient, absl::Span<float* const> state, float* out);

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_OPTIMIZER_TESTING_REFERENCE_H_
