// KeyListName: a short name for a list of keys that two processes both hold: a hash of the keys,
// and their number.
//
// 128 bits: among 2^40 lists, two have the same name with a probability of about 2^-49.
// Thread safety: a value; pure functions.
#ifndef CAPSTAN_COMMON_SPARSE_KEY_LIST_NAME_H_
#define CAPSTAN_COMMON_SPARSE_KEY_LIST_NAME_H_

#include <compare>
#include <cstdint>

#include "absl/types/span.h"
#include "common/sparse/key_hash.h"

namespace capstan {

struct KeyListName {
  uint64_t low = 0;
  uint64_t high = 0;
  int64_t count = 0;
  friend auto operator<=>(const KeyListName&, const KeyListName&) = default;
};

// The order of the keys counts. Cost: about 1 ns a key.
constexpr KeyListName NameOfKeys(absl::Span<const uint64_t> keys) {
  // Two chains that each lose nothing of what went in: odd factors and rotations are bijections.
  uint64_t low = 0x9E3779B97F4A7C15;
  uint64_t high = 0xC2B2AE3D27D4EB4F;
  for (const uint64_t key : keys) {
    const uint64_t hash = KeyHash(key);
    low = (low ^ hash) * 0xFF51AFD7ED558CCD;
    low = (low << 29) | (low >> 35);
    high = (high + hash) * 0xC4CEB9FE1A85EC53;
    high = (high << 41) | (high >> 23);
  }
  return {.low = KeyHash(low), .high = KeyHash(high), .count = static_cast<int64_t>(keys.size())};
}

}  // namespace capstan

#endif  // CAPSTAN_COMMON_SPARSE_KEY_LIST_NAME_H_
