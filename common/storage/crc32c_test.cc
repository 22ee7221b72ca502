#include "common/storage/crc32c.h"

#include <catch2/catch.hpp>
#include <string>

namespace capstan::crc32c_test {
namespace {

// One bit at a time, straight from the polynomial: the specification.
uint32_t Naive(const std::string& bytes) {
  uint32_t crc = 0xFFFFFFFF;
  for (const char c : bytes) {
    crc ^= static_cast<uint8_t>(c);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82F63B78u : 0);
  }
  return ~crc;
}

TEST_CASE("Crc32c: the published check values come out", "[common][storage]") {
  CHECK(Crc32cOf("123456789") == 0xE3069283);            // RFC 3720 and the CRC catalogue.
  CHECK(Crc32cOf(std::string(32, '\0')) == 0x8A9136AA);  // RFC 3720, B.4.
  CHECK(Crc32cOf(std::string(32, '\xFF')) == 0x62A8AB43);
  CHECK(Crc32cOf("") == 0);
}

TEST_CASE("Crc32c: pieces give what the whole gives, for every length", "[common][storage]") {
  std::string bytes;
  for (int i = 0; i < 300; ++i) {
    CHECK(Crc32cOf(bytes) == Naive(bytes));
    Crc32c pieces;
    pieces.Add(absl::string_view(bytes).substr(0, bytes.size() / 3));
    pieces.Add(absl::string_view(bytes).substr(bytes.size() / 3));
    CHECK(pieces.value() == Naive(bytes));
    bytes.push_back(static_cast<char>(i * 37 + 11));
  }
}

TEST_CASE("Crc32c: a masked checksum within the bytes does not blind one over them",
          "[common][storage]") {
  const auto with_crc = [](std::string bytes, bool masked) {
    const uint32_t crc = masked ? MaskCrc(Crc32cOf(bytes)) : Crc32cOf(bytes);
    for (int i = 0; i < 4; ++i) bytes.push_back(static_cast<char>(crc >> (8 * i)));
    return Crc32cOf(bytes);
  };
  CHECK(with_crc("one", false) == with_crc("two", false));  // Why MaskCrc is needed.
  CHECK(with_crc("one", true) != with_crc("two", true));
}

}  // namespace
}  // namespace capstan::crc32c_test
