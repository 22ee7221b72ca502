// KeyHash: spreads the keys of a sparse table over its buckets, and orders the keys of a message.
//
//   hash    = KeyHash(key)                      a bijection of 64 bits
//   bucket  = floor(hash * buckets / 2^64)      the shard of the key
//   place   = hash * buckets mod 2^64           where in the bucket; unique there
//
// Keys in ascending order of their hash are grouped by bucket, and ascend by place in each bucket.
// Thread safety: pure functions.
#ifndef CAPSTAN_COMMON_SPARSE_KEY_HASH_H_
#define CAPSTAN_COMMON_SPARSE_KEY_HASH_H_

#include <cstdint>

namespace capstan {

// SplitMix64's finaliser (Steele, Lea, Flood: "Fast splittable pseudorandom number generators",
// OOPSLA 2014; the constants are Stafford's variant 13).
constexpr uint64_t KeyHash(uint64_t key) {
  key = (key ^ (key >> 30)) * 0xBF58476D1CE4E5B9;
  key = (key ^ (key >> 27)) * 0x94D049BB133111EB;
  return key ^ (key >> 31);
}

// The key of a hash: KeyOfHash(KeyHash(key)) == key.
constexpr uint64_t KeyOfHash(uint64_t hash) {
  hash = (hash ^ (hash >> 31) ^ (hash >> 62)) * 0x319642B2D24D8EC3;
  hash = (hash ^ (hash >> 27) ^ (hash >> 54)) * 0x96DE1B173F119089;
  return hash ^ (hash >> 30) ^ (hash >> 60);
}

struct KeyPlace {
  int32_t bucket = 0;
  uint64_t place = 0;
};

// REQUIRES: buckets >= 1.
constexpr KeyPlace PlaceOf(uint64_t hash, int32_t buckets) {
  const auto product = static_cast<unsigned __int128>(hash) * static_cast<uint64_t>(buckets);
  return {.bucket = static_cast<int32_t>(static_cast<uint64_t>(product >> 64)),
          .place = static_cast<uint64_t>(product)};
}

}  // namespace capstan

#endif  // CAPSTAN_COMMON_SPARSE_KEY_HASH_H_
