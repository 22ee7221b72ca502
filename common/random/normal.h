// Normal numbers from uniform words, by Box and Muller ("A note on the generation of random normal
// deviates", 1958): sqrt(-2 log u) cos(2 pi v).
//
// The same bits on every processor: log and cos are sums of series here, not the C library's, every
// product and sum rounded and none fused. Their relative errors are below 1e-15.
// Thread safety: pure functions.
#ifndef CAPSTAN_COMMON_RANDOM_NORMAL_H_
#define CAPSTAN_COMMON_RANDOM_NORMAL_H_

#include <cstdint>

#include "absl/types/span.h"
#include "common/types/instruction_set.h"

namespace capstan {

// Mean 0, standard deviation 1. u = (a + 1) / 2^32, v = b / 2^32.
double NormalOf(uint32_t a, uint32_t b);

// A block of Philox4x32 (common/random/philox.h), and room for two numbers.
struct NormalPair {
  uint64_t counter_low = 0;
  uint64_t counter_high = 0;
  float first = 0;   // From words 0 and 1 of the block.
  float second = 0;  // From words 2 and 3.
};

// Fills in both numbers of each pair: NormalOf of the words of its block in `stream`, times
// `scale`. Runs the form of the loop for `set`. REQUIRES: IsSupported(set).
void FillNormals(InstructionSet set, uint64_t stream, double scale, absl::Span<NormalPair> pairs);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_RANDOM_NORMAL_H_
