// Input: the fuzzer's bytes, taken off piece by piece where a target needs more than one value.
//
// Beyond the end all values are 0 or empty, so every input is valid and a short one stays short.
// Thread safety: thread-compatible.
#ifndef CAPSTAN_TESTS_FUZZ_INPUT_H_
#define CAPSTAN_TESTS_FUZZ_INPUT_H_

#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"

namespace capstan::fuzz {

class Input {
 public:
  Input(const uint8_t* data, size_t size) : rest_(reinterpret_cast<const char*>(data), size) {}

  bool empty() const { return rest_.empty(); }
  uint8_t Byte() {
    const absl::string_view one = Take(1);
    return one.empty() ? uint8_t{0} : static_cast<uint8_t>(one[0]);
  }
  // Two bytes, little-endian.
  uint16_t Word() {
    const uint8_t low = Byte();
    return static_cast<uint16_t>(low | Byte() << 8);
  }
  // Mostly below 8, so that numbers which must agree often do; sometimes large, of either sign as
  // an int64_t, but never next to the ends of its range.
  uint64_t Number() {
    const uint64_t byte = Byte();
    return byte < 250 ? byte % 8 : byte << 54;
  }
  absl::string_view Take(size_t bytes) {
    const absl::string_view taken = rest_.substr(0, bytes);
    rest_.remove_prefix(taken.size());
    return taken;
  }
  absl::string_view Rest() { return Take(rest_.size()); }

 private:
  absl::string_view rest_;
};

}  // namespace capstan::fuzz

#endif  // CAPSTAN_TESTS_FUZZ_INPUT_H_
