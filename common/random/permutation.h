// Permutation: the order in which an epoch visits its samples, from (seed, epoch) alone.
//
// Fisher-Yates driven by Philox, so every process and every machine computes the same order.
// Thread safety: a pure function.
#ifndef CAPSTAN_COMMON_RANDOM_PERMUTATION_H_
#define CAPSTAN_COMMON_RANDOM_PERMUTATION_H_

#include <cstdint>
#include <vector>

namespace capstan {

// A permutation of [0, count) for stream `key`. REQUIRES: 0 <= count < 2^32.
std::vector<uint32_t> MakePermutation(uint64_t key, int64_t count);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_RANDOM_PERMUTATION_H_
