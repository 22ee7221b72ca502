// Crc32c: CRC-32C (Castagnoli, RFC 3720 appendix B.4) of bytes that come in pieces, at memory
// speed.
//
//   Crc32c crc;  crc.Add(head);  crc.Add(body);  crc.value();   // as of both in one piece
//
// The polynomial finds every change of up to 32 bits in a row, and every change of one or two bits
// in up to 256 MiB. Thread safety: a value.
#ifndef CAPSTAN_COMMON_STORAGE_CRC32C_H_
#define CAPSTAN_COMMON_STORAGE_CRC32C_H_

#include <cstdint>

#include "absl/strings/string_view.h"

namespace capstan {

class Crc32c {
 public:
  void Add(absl::string_view bytes);
  uint32_t value() const { return ~state_; }  // Of all bytes so far; of none: 0.

 private:
  uint32_t state_ = 0xFFFFFFFF;
};

// Of one piece.
uint32_t Crc32cOf(absl::string_view bytes);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_STORAGE_CRC32C_H_
