// Loops over floats that notice infinities and NaN.
//
// Thread safety: pure functions.
#ifndef CAPSTAN_COMMON_TYPES_FINITE_VALUES_H_
#define CAPSTAN_COMMON_TYPES_FINITE_VALUES_H_

#include "absl/types/span.h"

namespace capstan {

bool AllFinite(absl::Span<const float> values);

// Writes each value times `scale` to `to`, [values.size()]; returns whether all of them are finite.
// REQUIRES: the two do not overlap.
bool CopyScaled(absl::Span<const float> values, float scale, float* to);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_TYPES_FINITE_VALUES_H_
