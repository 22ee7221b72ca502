#include "common/sparse/key_batch.h"

#include <catch2/catch.hpp>
#include <cstdint>
#include <set>
#include <vector>

#include "common/random/philox.h"
#include "common/sparse/key_hash.h"

namespace capstan::key_batch_test {
namespace {

std::vector<uint64_t> Draw(uint64_t count, uint64_t range) {
  std::vector<uint64_t> keys;
  for (uint64_t i = 0; i < count; ++i) keys.push_back(MixKey(3, i) % range);
  return keys;
}

TEST_CASE("KeyBatch: each key once, ascending by hash, with its place", "[common][sparse]") {
  for (const uint64_t count : {0, 1, 2, 100, 5000, 100'000}) {
    for (const uint64_t range : {uint64_t{50}, uint64_t{1} << 60}) {
      CAPTURE(count, range);
      const std::vector<uint64_t> keys = Draw(count, range);
      std::vector<uint32_t> places;
      const KeyBatch batch = MakeKeyBatch(keys, 7, &places);
      CHECK(batch.keys.size() == std::set<uint64_t>(keys.begin(), keys.end()).size());
      int64_t wrong = 0;
      for (size_t i = 1; i < batch.keys.size(); ++i) {
        wrong += KeyHash(batch.keys[i - 1]) < KeyHash(batch.keys[i]) ? 0 : 1;
      }
      REQUIRE(places.size() == keys.size());
      for (size_t i = 0; i < keys.size(); ++i) wrong += batch.keys[places[i]] == keys[i] ? 0 : 1;
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("KeyBatch: buckets follow one another, those without keys too", "[common][sparse]") {
  const int32_t buckets = GENERATE(1, 3, 64, 1000);
  const KeyBatch batch = MakeKeyBatch(Draw(300, 1 << 20), buckets);
  REQUIRE(batch.bucket_begin.size() == static_cast<size_t>(buckets) + 1);
  CHECK(batch.bucket_begin.front() == 0);
  CHECK(batch.bucket_begin.back() == batch.size());
  int64_t wrong = 0;
  for (int32_t bucket = 0; bucket < buckets; ++bucket) {
    const Range range = batch.InBucket(bucket);
    for (int64_t i = range.begin; i < range.end; ++i) {
      const uint64_t hash = KeyHash(batch.keys[static_cast<size_t>(i)]);
      wrong += PlaceOf(hash, buckets).bucket == bucket ? 0 : 1;
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("KeyBatch: gradients of a repeated key are added up", "[common][sparse]") {
  const std::vector<uint64_t> keys = {10, 20, 10, 30, 10};
  std::vector<uint32_t> places;
  const KeyBatch batch = MakeKeyBatch(keys, 2, &places);
  const std::vector<float> gradients = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  const std::vector<float> sums = SumByKey(gradients, places, batch.size(), 2);
  REQUIRE(sums.size() == 6);
  CHECK(sums[2 * places[0]] == 15.0f);
  CHECK(sums[2 * places[0] + 1] == 18.0f);
  CHECK(sums[2 * places[1]] == 3.0f);
  CHECK(sums[2 * places[3] + 1] == 8.0f);
}

TEST_CASE("Key batch: lists of the same keys have the same name, others another", "[sparse]") {
  const auto named = [](std::vector<uint64_t> keys) {
    KeyBatch batch = MakeKeyBatch(keys, 3);
    NameLists(&batch);
    return batch.names;
  };
  const std::vector<KeyListName> names = named({5, 900, 7, 1, 2, 3, 4});
  REQUIRE(names.size() == 3);
  CHECK(names == named({4, 3, 2, 1, 7, 900, 5, 5}));
  CHECK(names[0].count + names[1].count + names[2].count == 7);
  CHECK(names != named({5, 900, 7, 1, 2, 3, 8}));
  // Every bit of every key counts, and so does their order.
  const std::vector<uint64_t> keys = {0, 1, 2, 3};
  std::set<KeyListName> seen = {NameOfKeys(keys), NameOfKeys(std::vector<uint64_t>{1, 0, 2, 3}),
                                NameOfKeys(std::vector<uint64_t>{0, 1, 2})};
  CHECK(seen.size() == 3);
  for (size_t i = 0; i < keys.size(); ++i) {
    for (int bit = 0; bit < 64; ++bit) {
      std::vector<uint64_t> other = keys;
      other[i] ^= uint64_t{1} << bit;
      CHECK(seen.insert(NameOfKeys(other)).second);
    }
  }
  CHECK(NameOfKeys({}).low != NameOfKeys({}).high);
}

}  // namespace
}  // namespace capstan::key_batch_test
