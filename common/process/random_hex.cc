#include "common/process/random_hex.h"

#include <cstdint>
#include <random>

#include "absl/strings/str_cat.h"

namespace capstan {

std::string RandomHex() {
  std::random_device device;
  const uint64_t number = uint64_t{device()} << 32 | device();
  return absl::StrCat(absl::Hex(number, absl::kZeroPad16));
}

}  // namespace capstan
