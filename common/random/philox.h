// Philox4x32-10: a counter-based generator. The n-th output depends on (key, n) alone, so any
// shard, worker or thread draws the same bits for the same element without sharing state.
//
// Source: Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3" (SC'11),
// section 5.3; constants as published there. Thread safety: pure functions.
#ifndef CAPSTAN_COMMON_RANDOM_PHILOX_H_
#define CAPSTAN_COMMON_RANDOM_PHILOX_H_

#include <array>
#include <cstdint>

namespace capstan {

// Four independent uniform 32-bit words for block `counter` of the stream named by `key`.
constexpr std::array<uint32_t, 4> Philox4x32(uint64_t key, uint64_t counter_low,
                                             uint64_t counter_high = 0) {
  std::array<uint32_t, 4> c = {
      static_cast<uint32_t>(counter_low), static_cast<uint32_t>(counter_low >> 32),
      static_cast<uint32_t>(counter_high), static_cast<uint32_t>(counter_high >> 32)};
  uint32_t k0 = static_cast<uint32_t>(key);
  uint32_t k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53} * c[0];
    const uint64_t p1 = uint64_t{0xCD9E8D57} * c[2];
    c = {static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ k0, static_cast<uint32_t>(p1),
         static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ k1, static_cast<uint32_t>(p0)};
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  return c;
}

// Mixes two words into a stream key; different (a, b) give unrelated streams (splitmix64
// finaliser).
constexpr uint64_t MixKey(uint64_t a, uint64_t b) {
  uint64_t x = a + 0x9E3779B97F4A7C15 * (b + 1);
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

// A key in memory that holds 32-bit numbers: two words, its lower half first.
inline constexpr int kKeyWords = 2;
constexpr std::array<int32_t, kKeyWords> WordsOfKey(uint64_t key) {
  return {static_cast<int32_t>(static_cast<uint32_t>(key)), static_cast<int32_t>(key >> 32)};
}
constexpr uint64_t KeyOfWords(int32_t low, int32_t high) {
  return uint64_t{static_cast<uint32_t>(high)} << 32 | static_cast<uint32_t>(low);
}

// The 32-bit word number `index` of the stream.
constexpr uint32_t PhiloxWord(uint64_t key, uint64_t index) {
  return Philox4x32(key, index / 4)[index % 4];
}

// Uniform in [0, 1) with 24 bits, so that the value is exact in fp32.
constexpr float ToUnitFloat(uint32_t word) { return static_cast<float>(word >> 8) * 0x1p-24f; }

}  // namespace capstan

#endif  // CAPSTAN_COMMON_RANDOM_PHILOX_H_
