// Crc64Of: CRC-64 (ECMA-182, reflected) of bytes, at memory speed: a hash by which equal contents
// are found. Contents that differ by chance have the same hash with probability 2^-64; contents
// with the same hash can also be made on purpose.
//
// Thread safety: a pure function.
#ifndef CAPSTAN_COMMON_STORAGE_CRC64_H_
#define CAPSTAN_COMMON_STORAGE_CRC64_H_

#include <cstdint>

#include "absl/strings/string_view.h"

namespace capstan {

uint64_t Crc64Of(absl::string_view bytes);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_STORAGE_CRC64_H_
