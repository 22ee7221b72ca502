// Crc32c: CRC-32C (Castagnoli, RFC 3720 appendix B.4) of bytes that come in pieces, at memory
// speed.
//
//   Crc32c crc;  crc.Add(head);  crc.Add(payload);  crc.value();   // as of both in one piece
//
// The polynomial finds every change of up to 32 bits in a row, and every change of one or two bits
// in up to 256 MiB. Thread safety: a value.
#ifndef CAPSTAN_COMMON_STORAGE_CRC32C_H_
#define CAPSTAN_COMMON_STORAGE_CRC32C_H_

#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"

namespace capstan {

class Crc32c {
 public:
  static constexpr size_t kBytes = sizeof(uint32_t);  // The size of a checksum in a file.

  void Add(absl::string_view bytes);
  uint32_t value() const { return ~state_; }  // Checksum of all bytes so far; 0 if there were none.

 private:
  uint32_t state_ = 0xFFFFFFFF;
};

// Checksum of one piece.
uint32_t Crc32cOf(absl::string_view bytes);

// The form in which a CRC is stored beside the bytes that it covers: the CRC of bytes followed by
// their own plain CRC is the same for any bytes, so a CRC over a file of such blocks would see
// nothing (as LevelDB, table/format: rotated by 15 bits, plus a constant).
constexpr uint32_t MaskCrc(uint32_t crc) { return ((crc >> 15) | (crc << 17)) + 0xA282EAD8; }

}  // namespace capstan

#endif  // CAPSTAN_COMMON_STORAGE_CRC32C_H_
