// Permutation: the order in which an epoch visits its samples, from (seed, epoch) alone.
//
// Fisher-Yates driven by Philox, so every process and every machine computes the same order.
// Thread safety: pure functions.
#ifndef CAPSTAN_COMMON_RANDOM_PERMUTATION_H_
#define CAPSTAN_COMMON_RANDOM_PERMUTATION_H_

#include <cstdint>
#include <vector>

namespace capstan {

// A permutation of [0, count) for stream `key`. REQUIRES: 0 <= count < 2^32.
std::vector<uint32_t> MakePermutation(uint64_t key, int64_t count);

// The key of the order of a job's samples in an epoch, from 0: position p has sample
// MakePermutation(EpochOrderKey(seed, epoch), samples)[p].
uint64_t EpochOrderKey(uint64_t seed, int32_t epoch);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_RANDOM_PERMUTATION_H_
