#include "server/store/sparse/rows/key_index.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <map>
#include <vector>

#include "common/random/philox.h"
#include "common/sparse/key_hash.h"
#include "common/testing/status_matchers.h"

namespace capstan::server::key_index_test {
namespace {

constexpr int kRowBytes = 16;

// An index with its rows, and a std::map that says what ought to be in it.
class Fixture {
 public:
  explicit Fixture(int32_t buckets) : places_{buckets}, index_(Made(places_)) {}

  void Insert(uint64_t key) {
    auto row = rows_.Allocate(key);
    REQUIRE_OK(row);
    REQUIRE_OK(index_.Insert(places_.Of(key), *row, rows_));
    expected_[key] = *row;
  }
  void Reserve(int64_t entries) { REQUIRE_OK(index_.Reserve(entries, rows_)); }
  void Erase(uint64_t key) {
    index_.Erase(places_.Of(key), expected_.at(key));
    rows_.Free(expected_.at(key));
    expected_.erase(key);
  }
  RowNumber Find(uint64_t key) const { return index_.Find(key, places_.Of(key), rows_); }
  // Keys in the order of the index's segments.
  std::vector<uint64_t> Keys() const {
    std::vector<RowNumber> numbers;
    uint64_t place = 0;
    do {
      place = index_.AppendRows(place, &numbers);
    } while (place != 0);
    std::vector<uint64_t> keys;
    for (const RowNumber row : numbers) keys.push_back(rows_.KeyAt(row));
    return keys;
  }
  // The keys of the rows from `*place` on that one run brings. Moves `*place` on: 0 at the end.
  std::vector<uint64_t> Run(uint64_t* place) const {
    std::vector<RowNumber> numbers;
    const uint64_t next = index_.AppendRun(*place, &numbers);
    std::vector<uint64_t> keys;
    for (const RowNumber row : numbers) {
      const uint64_t key = rows_.KeyAt(row), at = places_.Of(key);
      if (at >= *place && (next == 0 || at < next)) keys.push_back(key);
    }
    CHECK((next == 0 || next > *place));
    *place = next;
    return keys;
  }
  void Check() const {
    CHECK(index_.size() == static_cast<int64_t>(expected_.size()));
    int64_t wrong = 0;
    for (const auto& [key, row] : expected_) wrong += Find(key) == row ? 0 : 1;
    CHECK(wrong == 0);
    std::vector<uint64_t> keys = Keys();
    std::sort(keys.begin(), keys.end());
    CHECK(std::equal(keys.begin(), keys.end(), expected_.begin(), expected_.end(),
                     [](uint64_t key, const auto& entry) { return key == entry.first; }));
  }
  const KeyIndex& index() const { return index_; }
  const std::map<uint64_t, RowNumber>& expected() const { return expected_; }

 private:
  static KeyIndex Made(KeyIndex::Places places) {
    auto index = KeyIndex::Make(places);
    REQUIRE_OK(index);
    return *std::move(index);
  }
  KeyIndex::Places places_;
  RowSlab rows_{kRowBytes};
  KeyIndex index_;
  std::map<uint64_t, RowNumber> expected_;
};

TEST_CASE("KeyIndex: finds what was inserted and nothing else, at every size", "[server][sparse]") {
  Fixture fixture(1);
  CHECK(fixture.Find(1) == KeyIndex::kNone);
  for (uint64_t i = 0; i < 300; ++i) {
    fixture.Insert(i);
    fixture.Check();
    CHECK(fixture.Find(1000 + i) == KeyIndex::kNone);
  }
}

TEST_CASE("KeyIndex: segments split, and every key is still found", "[server][sparse]") {
  const int32_t buckets = GENERATE(1, 3, 16);
  Fixture fixture(buckets);
  for (uint64_t i = 0; i < 200'000; ++i) fixture.Insert(MixKey(7, i));
  fixture.Check();
  int64_t found = 0;
  for (uint64_t i = 0; i < 100'000; ++i) found += fixture.Find(MixKey(8, i)) != KeyIndex::kNone;
  CHECK(found == 0);
  // 64 bytes for 12 entries, 40 to 80 % full.
  CHECK(fixture.index().bytes() <= fixture.index().size() * 14);
}

TEST_CASE("KeyIndex: what is reserved takes no more than is said before", "[server][sparse]") {
  for (int64_t entries = 0; entries < 5'000'000; entries += 1 + entries / 7) {
    Fixture fixture(1);
    fixture.Reserve(entries);
    CAPTURE(entries);
    REQUIRE(fixture.index().bytes() <= KeyIndex::ReservedBytesMax(entries));
  }
}

TEST_CASE("KeyIndex: keys in ascending order of their places, as messages and snapshots have them",
          "[server][sparse]") {
  const bool reserve = GENERATE(false, true);
  constexpr uint64_t kKeys = 200'000;
  Fixture fixture(1);
  if (reserve) fixture.Reserve(kKeys);
  const int64_t bytes = fixture.index().bytes();
  for (uint64_t i = 0; i < kKeys; ++i) {
    fixture.Insert(KeyOfHash(i * (~uint64_t{0} / kKeys)));  // One bucket: the hash is the place.
  }
  fixture.Check();
  if (reserve) CHECK(fixture.index().bytes() <= bytes * 5 / 4);
  CHECK(fixture.index().bytes() <= fixture.index().size() * 16);
}

TEST_CASE("KeyIndex: keys that were made to collide are slow, and nothing worse",
          "[server][sparse]") {
  Fixture fixture(1);
  // Places that agree in their upper 40 bits: no split tells them apart.
  for (uint64_t i = 0; i < 15'000; ++i) {
    fixture.Insert(KeyOfHash((uint64_t{0x123456789A} << 24) | (i << 4)));
  }
  fixture.Check();
  CHECK(fixture.Find(1) == KeyIndex::kNone);
}

TEST_CASE("KeyIndex: whoever goes through it sees keys in ascending order of segments",
          "[server][sparse]") {
  Fixture fixture(1);
  for (uint64_t i = 0; i < 200'000; ++i) fixture.Insert(i);
  const std::vector<uint64_t> keys = fixture.Keys();
  const KeyIndex::Places places{1};
  // Segments cover at least 2^-4 of all places here.
  for (size_t i = 1; i < keys.size(); ++i) {
    if ((places.Of(keys[i]) >> 60) < (places.Of(keys[i - 1]) >> 60)) FAIL("at key " << i);
  }
}

TEST_CASE("KeyIndex: small runs bring every row that stays exactly once, whatever comes and goes",
          "[server][sparse]") {
  const int32_t buckets = GENERATE(1, 3);
  const uint64_t stays = GENERATE(0, 1, 200, 30'000);
  // Between two runs: a small table grows many times over, a large one splits some segments.
  const uint64_t changes = GENERATE(0, 40, 1'000);
  Fixture fixture(buckets);
  for (uint64_t i = 0; i < stays; ++i) fixture.Insert(MixKey(1, i));
  std::map<uint64_t, int> seen;
  std::vector<uint64_t> others;  // Made between two runs, erased between two later ones.
  uint64_t place = 0, made = 0, runs = 0, wrong = 0;
  do {
    for (const uint64_t key : fixture.Run(&place)) ++seen[key];
    for (uint64_t i = 0; i < changes && made < 30'000; ++i) {
      others.push_back(MixKey(2, made++));
      fixture.Insert(others.back());
      if (others.size() <= changes) continue;
      fixture.Erase(others[others.size() / 2]);
      others.erase(others.begin() + static_cast<int64_t>(others.size() / 2));
    }
    ++runs;
  } while (place != 0);
  for (uint64_t i = 0; i < stays; ++i) wrong += seen[MixKey(1, i)] == 1 ? 0 : 1;
  for (const auto& [key, times] : seen) wrong += times > 1 ? 1 : 0;
  CHECK(wrong == 0);
  CHECK(runs >= stays / (KeyIndex::kRunGroups * 24));  // Each brings some hundreds.
  fixture.Check();
}

TEST_CASE("KeyIndex: runs pass by what had no room where it belongs, and what is no more",
          "[server][sparse]") {
  Fixture fixture(1);
  // All of one group, the last one of the index: they lie in the first ones, too.
  const uint64_t last = ~uint64_t{0} << 20;
  for (uint64_t i = 0; i < 300; ++i) fixture.Insert(KeyOfHash(last | (i << 8)));
  for (uint64_t i = 0; i < 300; ++i) fixture.Insert(i);
  for (uint64_t i = 0; i < 300; i += 2) fixture.Erase(i);
  std::map<uint64_t, int> seen;
  uint64_t place = 0;
  do {
    for (const uint64_t key : fixture.Run(&place)) ++seen[key];
  } while (place != 0);
  CHECK(seen.size() == fixture.expected().size());
  for (const auto& [key, times] : seen) CHECK(times == 1);
}

TEST_CASE("KeyIndex: rows between two places are all told, and few others", "[server][sparse]") {
  const uint64_t count = GENERATE(5, 300, 40'000);
  Fixture fixture(1);
  for (uint64_t i = 0; i < count; ++i) fixture.Insert(i);
  for (uint64_t i = 0; i < count; i += 5) fixture.Erase(i);
  const KeyIndex::Places places{1};
  for (const int bits : {0, 1, 6, 10}) {
    const uint64_t width = ~uint64_t{0} >> bits;
    for (uint64_t part = 0; part < 4 && part >> bits == 0; ++part) {
      const uint64_t first = part * (width + 1);
      std::vector<RowNumber> numbers;
      fixture.index().AppendBetween(first, first + width, &numbers);
      CHECK(numbers.size() <= (count >> bits) * 5 / 4 + 100);
      std::sort(numbers.begin(), numbers.end());
      CHECK(std::unique(numbers.begin(), numbers.end()) == numbers.end());
      int64_t missing = 0;
      for (const auto& [key, row] : fixture.expected()) {
        if (places.Of(key) < first || places.Of(key) - first > width) continue;
        missing += std::binary_search(numbers.begin(), numbers.end(), row) ? 0 : 1;
      }
      CHECK(missing == 0);
    }
  }
}

TEST_CASE("KeyIndex: erased keys are gone, others stay, and room is used again",
          "[server][sparse]") {
  Fixture fixture(1);
  for (uint64_t i = 0; i < 50'000; ++i) fixture.Insert(i);
  const int64_t bytes = fixture.index().bytes();
  for (uint64_t round = 0; round < 20; ++round) {
    for (uint64_t i = 0; i < 25'000; ++i) fixture.Erase(round * 25'000 + i);
    for (uint64_t i = 0; i < 25'000; ++i) fixture.Insert((round + 2) * 25'000 + i);
  }
  fixture.Check();
  CHECK(fixture.index().bytes() <= 2 * bytes);
}

TEST_CASE("KeyIndex: keys that share a tag and a line are told apart", "[server][sparse]") {
  Fixture fixture(1);
  // Among 30,000 keys in segments of 2^10 lines many share line and tag.
  for (uint64_t i = 0; i < 30'000; ++i) fixture.Insert(i);
  const KeyIndex::Places places{1};
  int64_t other_guesses = 0;
  for (const auto& [key, row] : fixture.expected()) {
    other_guesses += fixture.index().Guess(places.Of(key)) == row ? 0 : 1;
  }
  CHECK(other_guesses > 100);
  CHECK(other_guesses < 1500);  // A guess is right 19 times of 20.
  fixture.Check();
}

}  // namespace
}  // namespace capstan::server::key_index_test
