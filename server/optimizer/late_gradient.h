// CorrectLateGradient: corrects a gradient whose parameters other workers have updated since its
// worker pulled them.
//
// README.md has the rule with its sources; late_gradient.cc is the specification: every operation
// rounds to fp32 and none is fused. Elements are independent: the bits do not depend on what a
// range is cut into.
// Thread safety: a pure function.
#ifndef CAPSTAN_SERVER_OPTIMIZER_LATE_GRADIENT_H_
#define CAPSTAN_SERVER_OPTIMIZER_LATE_GRADIENT_H_

#include <cstdint>

#include "common/types/unaligned_float.h"

namespace capstan::server {

struct LateGradient {
  int64_t divisor = 1;              // >= 1: updates since the pull, where the rate is divided.
  float delay_compensation = 0.0f;  // lambda, >= 0. 0: `now` and `pulled` are not read.
  float clip_value = 0.0f;          // The optimizer's. 0: off.
};

// Writes the corrected gradient of n elements to `out`:
//   gradient  [n] as the worker computed it
//   now       [n] the parameters
//   pulled    [n] the parameters that the worker computed it with
// REQUIRES: n >= 0; `out` is disjoint from the others.
void CorrectLateGradient(const LateGradient& rule, int64_t n, const UnalignedFloat* gradient,
                         const float* now, const float* pulled, float* out);

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_OPTIMIZER_LATE_GRADIENT_H_
