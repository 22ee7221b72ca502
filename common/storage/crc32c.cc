#include "common/storage/crc32c.h"

#include <isa-l/crc.h>

#include <algorithm>

namespace capstan {
namespace {

constexpr size_t kPieceBytesMax = size_t{1} << 30;  // The library's length is an int.

}  // namespace

void Crc32c::Add(absl::string_view bytes) {
  while (!bytes.empty()) {
    const absl::string_view piece = bytes.substr(0, kPieceBytesMax);
    // The library's parameter is not const, but it only reads.
    auto* data = reinterpret_cast<unsigned char*>(const_cast<char*>(piece.data()));
    state_ = crc32_iscsi(data, static_cast<int>(piece.size()), state_);
    bytes.remove_prefix(piece.size());
  }
}

uint32_t Crc32cOf(absl::string_view bytes) {
  Crc32c crc;
  crc.Add(bytes);
  return crc.value();
}

}  // namespace capstan
