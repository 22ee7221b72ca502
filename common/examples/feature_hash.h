// Feature hash: maps a field and the bytes of a category to the key of its parameters.
//
// HashFeature is XXH64 of the bytes with the field's number as seed, and never changes: keys are
// stored in checkpoints and models. Any xxHash library gives the same, such as Python's
// xxhash.xxh64(b"68fd1e64", seed=1). Two of n different categories collide with probability
// n^2 / 2^65: 0.0003 for 100 million of them, without buckets.
// Reference: https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md. Pure functions.
#ifndef CAPSTAN_COMMON_EXAMPLES_FEATURE_HASH_H_
#define CAPSTAN_COMMON_EXAMPLES_FEATURE_HASH_H_

#include <cstdint>

#include "absl/strings/string_view.h"

namespace capstan {

// The key of the category `bytes` of `field`. The same bytes in two fields are two categories.
// REQUIRES: field >= 0.
uint64_t HashFeature(int32_t field, absl::string_view bytes);

// Folds the key into [0, hash_buckets), which all fields share. With 0 the key does not change.
inline uint64_t FoldKey(uint64_t key, uint64_t hash_buckets) {
  return hash_buckets == 0 ? key : key % hash_buckets;
}

}  // namespace capstan

#endif  // CAPSTAN_COMMON_EXAMPLES_FEATURE_HASH_H_
