#include "common/sparse/key_hash.h"

#include <catch2/catch.hpp>
#include <cstdint>
#include <limits>
#include <vector>

#include "common/random/philox.h"

namespace capstan::key_hash_test {
namespace {

constexpr uint64_t kLargest = std::numeric_limits<uint64_t>::max();

TEST_CASE("KeyHash: known answers", "[common][sparse]") {
  CHECK(KeyHash(0) == 0);
  CHECK(KeyHash(1) == 0x5692161d100b05e5);
  CHECK(KeyHash(12345) == 0xf36cf1164265dd51);
  CHECK(KeyHash(kLargest) == 0xb4d055fcf2cbbd7b);
}

TEST_CASE("KeyHash: is a bijection, whose inverse gives the key", "[common][sparse]") {
  for (const uint64_t key : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 63, kLargest}) {
    CHECK(KeyOfHash(KeyHash(key)) == key);
  }
  for (uint64_t i = 0; i < 1000; ++i) CHECK(KeyOfHash(KeyHash(MixKey(5, i))) == MixKey(5, i));
}

TEST_CASE("PlaceOf: places ascend with the hash in each bucket, and buckets with it",
          "[common][sparse]") {
  for (const int32_t buckets : {1, 2, 3, 7, 1000}) {
    CAPTURE(buckets);
    CHECK(PlaceOf(0, buckets).bucket == 0);
    CHECK(PlaceOf(kLargest, buckets).bucket == buckets - 1);
    KeyPlace before = PlaceOf(0, buckets);
    for (uint64_t step = 1; step < 1000; ++step) {
      const KeyPlace place = PlaceOf(step * (kLargest / 1000), buckets);
      CHECK((place.bucket > before.bucket ||
             (place.bucket == before.bucket && place.place > before.place)));
      before = place;
    }
  }
}

TEST_CASE("PlaceOf: consecutive keys fill all buckets evenly", "[common][sparse]") {
  constexpr int32_t kBuckets = 12;
  constexpr int64_t kKeys = 120'000;
  std::vector<int64_t> count(kBuckets);
  for (uint64_t key = 0; key < kKeys; ++key) {
    ++count[static_cast<size_t>(PlaceOf(KeyHash(key), kBuckets).bucket)];
  }
  // The standard deviation of a bucket is 96: 5 of them.
  for (const int64_t keys : count) CHECK(std::abs(keys - kKeys / kBuckets) < 480);
}

}  // namespace
}  // namespace capstan::key_hash_test
