// Prng: all randomness of a simulated world, from one key, the same on every machine.
//
// A stream of Philox words; Fork gives an unrelated stream, so that one more draw in one part of
// the world does not change what another part draws.
// Thread safety: thread-compatible.
#ifndef CAPSTAN_TESTS_SIMULATION_NETWORK_PRNG_H_
#define CAPSTAN_TESTS_SIMULATION_NETWORK_PRNG_H_

#include <cstdint>

#include "absl/time/time.h"
#include "common/random/philox.h"

namespace capstan::sim {

class Prng {
 public:
  explicit Prng(uint64_t key) : key_(key) {}

  Prng Fork(uint64_t stream) const { return Prng(MixKey(key_, stream)); }

  uint32_t Word() { return PhiloxWord(key_, next_++); }
  // Uniform in [low, high], up to a bias of 2^-32. REQUIRES: low <= high, high - low < 2^31.
  int64_t Between(int64_t low, int64_t high) {
    const auto count = static_cast<uint64_t>(high - low + 1);
    return low + static_cast<int64_t>(uint64_t{Word()} * count >> 32);
  }
  absl::Duration Between(absl::Duration low, absl::Duration high) {
    return low + absl::Nanoseconds(static_cast<int64_t>(
                     Unit() * static_cast<double>(absl::ToInt64Nanoseconds(high - low))));
  }
  double Unit() { return static_cast<double>(Word()) * 0x1p-32; }  // Uniform in [0, 1).
  bool Chance(double probability) { return Unit() < probability; }

 private:
  uint64_t key_;
  uint64_t next_ = 0;
};

}  // namespace capstan::sim

#endif  // CAPSTAN_TESTS_SIMULATION_NETWORK_PRNG_H_
