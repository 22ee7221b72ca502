#include "common/examples/feature_hash.h"

#include <catch2/catch.hpp>
#include <string>

namespace capstan::feature_hash_test {
namespace {

std::string CountingBytes(size_t count) {
  std::string bytes(count, '\0');
  for (size_t i = 0; i < count; ++i) bytes[i] = static_cast<char>(i);
  return bytes;
}

// From Python's xxhash 3: xxhash.xxh64(bytes, seed=field).
TEST_CASE("Feature hash: known answers of XXH64", "[common][examples]") {
  CHECK(HashFeature(0, "") == 0xef46db3751d8e999);
  CHECK(HashFeature(1, "") == 0xd5afba1336a3be4b);
  CHECK(HashFeature(0, "a") == 0xd24ec4f1a98c6e5b);
  CHECK(HashFeature(0, "abc") == 0x44bc2cf5ad770999);
  CHECK(HashFeature(2147483647, "abc") == 0x20922dae9834908a);
  CHECK(HashFeature(0, "68fd1e64") == 0x5d3ccd85c9c22fe4);
  CHECK(HashFeature(1, "68fd1e64") == 0xd2e5a37bb032083c);
  CHECK(HashFeature(7, CountingBytes(4)) == 0x6ae497162d0610d7);
  CHECK(HashFeature(8, CountingBytes(12)) == 0x2b2534f9492956c0);
  CHECK(HashFeature(2, CountingBytes(31)) == 0x589639dd80649e3d);
  CHECK(HashFeature(3, CountingBytes(32)) == 0x8ff1c9bc5b135c37);
  CHECK(HashFeature(4, CountingBytes(33)) == 0x9b637758ade86949);
  CHECK(HashFeature(5, CountingBytes(100)) == 0x9c502a83dcb7c69e);
}

TEST_CASE("Feature hash: where the bytes lie does not matter", "[common][examples]") {
  const std::string bytes = CountingBytes(100);
  for (size_t shift = 0; shift < 9; ++shift) {
    const std::string moved = std::string(shift, 'x') + bytes;
    CHECK(HashFeature(5, absl::string_view(moved).substr(shift)) == 0x9c502a83dcb7c69e);
  }
}

TEST_CASE("Feature hash: folding is the remainder, and none for 0 buckets", "[common][examples]") {
  CHECK(FoldKey(0xef46db3751d8e999, 0) == 0xef46db3751d8e999);
  CHECK(FoldKey(0xef46db3751d8e999, 1) == 0);
  CHECK(FoldKey(0xef46db3751d8e999, 1 << 18) == 0x0e999);
  CHECK(FoldKey(25, 7) == 4);
}

}  // namespace
}  // namespace capstan::feature_hash_test
