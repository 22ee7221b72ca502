#include "common/sparse/wanted_keys.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "common/testing/status_matchers.h"

namespace capstan::wanted_keys_test {
namespace {

using absl::StatusCode;

TEST_CASE("Wanted keys: bits name those keys of every bucket that are wanted", "[sparse]") {
  std::vector<uint64_t> keys;
  for (uint64_t key = 0; key < 1000; ++key) keys.push_back(key);
  const KeyBatch batch = MakeKeyBatch(keys, 7);
  std::vector<uint32_t> places;
  for (uint32_t place = 0; place < 1000; ++place) {
    if (place % 3 == 0 || place > 900) places.push_back(place);
  }
  const WantedKeys wanted = MakeWantedKeys(batch, places);
  CHECK(wanted.size() == std::ssize(places));
  std::vector<uint64_t> named;
  for (int64_t bucket = 0; bucket < 7; ++bucket) {
    const Range part = batch.InBucket(bucket);
    const auto list =
        absl::MakeConstSpan(batch.keys)
            .subspan(static_cast<size_t>(part.begin), static_cast<size_t>(part.size()));
    const std::string bits = WantedBits(part, wanted.InBucket(bucket));
    if (bits.empty()) {
      named.insert(named.end(), list.begin(), list.end());
      continue;
    }
    REQUIRE_OK_AND_ASSIGN(const std::vector<uint64_t> of_bucket, KeysOfBits(list, bits));
    named.insert(named.end(), of_bucket.begin(), of_bucket.end());
  }
  std::vector<uint64_t> expected;
  for (const uint32_t place : places) expected.push_back(batch.keys[place]);
  CHECK(named == expected);
}

TEST_CASE("Wanted keys: none, all, and a bucket without keys", "[sparse]") {
  const KeyBatch batch = MakeKeyBatch({uint64_t{5}}, 4);
  const WantedKeys none = MakeWantedKeys(batch, {});
  const WantedKeys all = MakeWantedKeys(batch, {0});
  for (int64_t bucket = 0; bucket < 4; ++bucket) {
    const Range part = batch.InBucket(bucket);
    CHECK(WantedBits(part, none.InBucket(bucket)) == std::string(part.empty() ? 0 : 1, '\0'));
    CHECK(WantedBits(part, all.InBucket(bucket)).empty());
  }
  CHECK(KeysOfBits({uint64_t{5}}, std::string(1, '\0')).value().empty());
}

TEST_CASE("Wanted keys: bits that do not fit the list are refused", "[sparse]") {
  const std::vector<uint64_t> list(9);
  CHECK_STATUS(KeysOfBits(list, "a"), StatusCode::kInvalidArgument,
               "wanted: 1 bytes, expected 2 for 9 keys");
  CHECK_STATUS(KeysOfBits(list, "abc"), StatusCode::kInvalidArgument, "expected 2 for 9 keys");
  CHECK_STATUS(KeysOfBits(list, std::string("\x01\x02", 2)), StatusCode::kInvalidArgument,
               "wanted: bit 9 is set, expected bits below 9");
  CHECK(KeysOfBits(list, std::string("\x01\x01", 2)).value().size() == 2);
}

}  // namespace
}  // namespace capstan::wanted_keys_test
