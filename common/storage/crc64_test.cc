#include "common/storage/crc64.h"

#include <catch2/catch.hpp>
#include <string>

namespace capstan::crc64_test {
namespace {

// One bit at a time, straight from the polynomial: the specification.
uint64_t Naive(const std::string& bytes) {
  uint64_t crc = ~uint64_t{0};
  for (const char c : bytes) {
    crc ^= static_cast<uint8_t>(c);
    for (int bit = 0; bit < 8; ++bit) {
      crc = (crc >> 1) ^ ((crc & 1) != 0 ? uint64_t{0xC96C5795D7870F42} : 0);
    }
  }
  return ~crc;
}

TEST_CASE("Crc64: the published check value comes out", "[common][storage]") {
  CHECK(Crc64Of("123456789") == 0x995DC9BBDF1939FA);  // CRC-64/XZ of the CRC catalogue.
  CHECK(Crc64Of("") == 0);
}

TEST_CASE("Crc64: it is that of the polynomial for every length", "[common][storage]") {
  std::string bytes;
  for (int i = 0; i < 600; ++i) {
    CHECK(Crc64Of(bytes) == Naive(bytes));
    bytes.push_back(static_cast<char>(i * 37 + 11));
  }
}

}  // namespace
}  // namespace capstan::crc64_test
