// TrustRatio: the factor of a tensor's rate under a layer-wise rule (LARS, LAMB).
//
//   LARS: trust_coefficient * |w| / (|g| + weight_decay * |w|)     LAMB: |w| / |u|
//
// g is the clipped gradient, u the step that LAMB would take at rate 1, |x| the L2 norm over the
// whole tensor. The ratio is 1 where |w| or the other norm is 0, and for tensors that have none
// (OptimizerConfig::has_trust_ratio). README.md has the rules and their sources.
//
// Squares and their sums are fp64, in lanes that are added in a fixed order: the same bits whatever
// the blocks are and whichever instructions the CPU has.
// Thread safety: thread-compatible.
#ifndef CAPSTAN_SERVER_OPTIMIZER_TRUST_RATIO_H_
#define CAPSTAN_SERVER_OPTIMIZER_TRUST_RATIO_H_

#include <array>
#include <cstdint>

#include "absl/types/span.h"
#include "common/types/instruction_set.h"
#include "common/types/unaligned_float.h"
#include "server/optimizer/config/optimizer_config.h"
#include "server/optimizer/step_scalars.h"

namespace capstan::server {

class TrustRatio {
 public:
  static constexpr int64_t kLanes = 16;

  // For update number `step` (from 0). REQUIRES: IsLayerWise(config); IsSupported(set).
  TrustRatio(const OptimizerConfig& config, int64_t step,
             InstructionSet set = BestInstructionSet());

  // Takes the next n elements of the tensor, in order. It updates the moments in `state`, so that
  // Apply follows once for each element. Arguments as those of Apply.
  // REQUIRES: n is a multiple of kLanes, but for the last elements of the tensor.
  void Add(int64_t n, const float* in, const UnalignedFloat* gradient,
           absl::Span<float* const> state);

  // REQUIRES: all elements were added. Not finite if a norm is not: then the tensor's weights are
  // not finite after the update either.
  double Value() const;

 private:
  using Sums = std::array<double, kLanes>;

  const OptimizerConfig& config_;  // Outlives this.
  const StepScalars scalars_;
  const InstructionSet set_;
  Sums weights_{}, directions_{};  // Sums of squares.
};

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_OPTIMIZER_TRUST_RATIO_H_
