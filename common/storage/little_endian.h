// PutLe32, PutLe64, GetLe32, GetLe64: numbers in files, least byte first on any machine.
//
// Thread safety: pure functions.
#ifndef CAPSTAN_COMMON_STORAGE_LITTLE_ENDIAN_H_
#define CAPSTAN_COMMON_STORAGE_LITTLE_ENDIAN_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace capstan {

template <typename Number>
void PutLittleEndian(Number number, std::string* bytes) {
  for (size_t i = 0; i < sizeof(Number); ++i) {
    bytes->push_back(static_cast<char>(static_cast<uint64_t>(number) >> (8 * i)));
  }
}

// REQUIRES: `at` + the number's size <= bytes.size().
template <typename Number>
Number GetLittleEndian(absl::string_view bytes, size_t at) {
  uint64_t number = 0;
  for (size_t i = 0; i < sizeof(Number); ++i) {
    number |= uint64_t{static_cast<uint8_t>(bytes[at + i])} << (8 * i);
  }
  return static_cast<Number>(number);
}

inline void PutLe32(uint32_t number, std::string* bytes) { PutLittleEndian(number, bytes); }
inline void PutLe64(uint64_t number, std::string* bytes) { PutLittleEndian(number, bytes); }
inline uint32_t GetLe32(absl::string_view bytes, size_t at) {
  return GetLittleEndian<uint32_t>(bytes, at);
}
inline uint64_t GetLe64(absl::string_view bytes, size_t at) {
  return GetLittleEndian<uint64_t>(bytes, at);
}

}  // namespace capstan

#endif  // CAPSTAN_COMMON_STORAGE_LITTLE_ENDIAN_H_
