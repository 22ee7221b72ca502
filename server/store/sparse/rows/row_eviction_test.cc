#include "server/store/sparse/rows/row_eviction.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <map>
#include <vector>

#include "common/testing/status_matchers.h"
#include "server/store/sparse/rows/key_index.h"
#include "server/store/sparse/rows/row_slab.h"
#include "server/store/sparse/rows/row_stamp.h"

namespace capstan::server::row_eviction_test {
namespace {

constexpr KeyIndex::Places kPlaces{1};

// Rows that are only a key and a stamp.
class Fixture {
 public:
  explicit Fixture(const RowEviction::Config& config)
      : index_(Made()), eviction_(config, kPlaces) {}

  void SetBefore(int64_t version) { eviction_.SetBefore(version); }
  // One update: names these keys.
  void Update(const std::vector<uint64_t>& keys) {
    ++version_;
    int64_t made = 0;
    for (const uint64_t key : keys) {
      RowNumber row = index_.Find(key, kPlaces.Of(key), rows_);
      if (row == KeyIndex::kNone) {
        ++made;
        REQUIRE_OK_AND_ASSIGN(row, rows_.Allocate(key));
        REQUIRE_OK(index_.Insert(kPlaces.Of(key), row, rows_));
      }
      SetStamp(StampOf(version_), rows_.At(row));
      updated_[key] = version_;
    }
    left_.clear();
    for (const RowEviction::Victim& victim : eviction_.Pick(version_, made, index_, rows_)) {
      const uint64_t key = rows_.KeyAt(victim.row);
      wrong_places_ += kPlaces.Of(key) != victim.place;
      left_.push_back({key, version_ - updated_.at(key), victim.by_age});
      updated_.erase(key);
      index_.Erase(victim.place, victim.row);
      rows_.Free(victim.row);
    }
  }
  void UpdateRange(uint64_t begin, uint64_t end) {
    std::vector<uint64_t> keys;
    for (uint64_t key = begin; key < end; ++key) keys.push_back(key);
    Update(keys);
  }
  bool Has(uint64_t key) const { return updated_.contains(key); }
  int64_t rows() const { return rows_.rows(); }
  int64_t wrong_places() const { return wrong_places_; }

  struct Left {
    uint64_t key = 0;
    int64_t age = 0;
    bool by_age = false;
  };
  const std::vector<Left>& left() const { return left_; }  // Rows that left with the last update.

 private:
  static KeyIndex Made() {
    auto index = KeyIndex::Make(kPlaces);
    REQUIRE_OK(index);
    return *std::move(index);
  }
  RowSlab rows_{16};
  KeyIndex index_;
  RowEviction eviction_;
  int64_t version_ = 0;
  std::map<uint64_t, int64_t> updated_;
  std::vector<Left> left_;
  int64_t wrong_places_ = 0;
};

TEST_CASE("RowEviction: without rules nobody leaves", "[server][sparse]") {
  Fixture fixture({});
  for (uint64_t i = 0; i < 100; ++i) fixture.UpdateRange(i * 100, i * 100 + 100);
  CHECK(fixture.rows() == 10'000);
}

TEST_CASE("RowEviction: a small bucket's rows leave at the very version", "[server][sparse]") {
  Fixture fixture({.after = 3});
  fixture.Update({1, 2, 3});
  fixture.Update({2});
  fixture.Update({3});
  CHECK(fixture.left().empty());
  fixture.Update({4});
  REQUIRE(fixture.left().size() == 1);
  CHECK(fixture.left()[0].key == 1);
  CHECK(fixture.left()[0].age == 3);
  CHECK(fixture.left()[0].by_age);
  fixture.Update({});
  CHECK_FALSE(fixture.Has(2));
  fixture.Update({});
  CHECK_FALSE(fixture.Has(3));
  fixture.Update({});
  CHECK(fixture.rows() == 0);
}

TEST_CASE("RowEviction: rows leave soon after their time, while others come", "[server][sparse]") {
  constexpr int64_t kAfter = 100;
  const uint64_t per_update = GENERATE(1, 50, 300);
  Fixture fixture({.after = kAfter});
  int64_t most = 0, early = 0;
  for (uint64_t i = 0; i < 4 * kAfter; ++i) {
    fixture.UpdateRange(i * per_update, (i + 1) * per_update);
    most = std::max(most, fixture.rows());
    for (const Fixture::Left& left : fixture.left()) early += left.age < kAfter || !left.by_age;
  }
  CHECK(early == 0);
  CHECK(fixture.wrong_places() == 0);
  // A third of those that are young enough, and what the hand finds in a round.
  CHECK(most <= static_cast<int64_t>(per_update) * kAfter * 4 / 3 + 200);
}

TEST_CASE("RowEviction: a bucket has rows_max rows after each update, unless one names more",
          "[server][sparse]") {
  Fixture fixture({.rows_max = 1000});
  int64_t gone = 0;
  for (uint64_t i = 0; i < 300; ++i) {
    fixture.UpdateRange(i * 20, i * 20 + 30);  // Ten of the update before.
    CHECK(fixture.rows() == std::min<int64_t>(1000, static_cast<int64_t>(i) * 20 + 30));
    for (uint64_t key = i * 20; key < i * 20 + 30; ++key) gone += !fixture.Has(key);
  }
  CHECK(gone == 0);
  fixture.UpdateRange(100'000, 105'000);
  CHECK(fixture.rows() == 5000);  // All of the update at hand, and nobody else.
  fixture.Update({1});
  CHECK(fixture.rows() == 1000);
  CHECK(fixture.Has(1));
}

TEST_CASE("RowEviction: beyond the limit those updated longest ago leave, more or less",
          "[server][sparse]") {
  constexpr uint64_t kHot = 300;
  constexpr uint64_t kRounds = 1500;
  Fixture fixture({.rows_max = 1000});
  int64_t hot_left = 0, all_left = 0;
  for (uint64_t i = 0; i < kRounds; ++i) {
    std::vector<uint64_t> keys;
    for (uint64_t k = 0; k < 10; ++k) keys.push_back((i * 10 + k) % kHot);  // Every 30 updates.
    for (uint64_t k = 0; k < 10; ++k) keys.push_back(1'000'000 + i * 10 + k);
    fixture.Update(keys);
    for (const Fixture::Left& left : fixture.left()) hot_left += left.key < kHot;
    all_left += static_cast<int64_t>(fixture.left().size());
  }
  CHECK(all_left > 10'000);
  CHECK(hot_left < all_left / 50);  // A row at random would be hot three times of ten.
}

TEST_CASE("RowEviction: rows leave that were updated last before a given version",
          "[server][sparse]") {
  Fixture fixture({.by_time = true});
  fixture.Update({1, 2, 3});
  fixture.Update({2});
  fixture.Update({3});
  fixture.SetBefore(2);
  fixture.Update({4});
  REQUIRE(fixture.left().size() == 1);
  CHECK(fixture.left()[0].key == 1);
  CHECK(fixture.left()[0].by_age);
  fixture.Update({5});
  CHECK(fixture.left().empty());
  fixture.SetBefore(6);  // All before the next update; the rows of that one stay.
  fixture.Update({5, 6});
  CHECK(fixture.left().size() == 3);
  CHECK(fixture.rows() == 2);
}

TEST_CASE("RowEviction: of a version and an age whichever makes more rows too old counts",
          "[server][sparse]") {
  Fixture fixture({.after = 2, .by_time = true});
  fixture.Update({1});
  fixture.Update({2});
  fixture.SetBefore(1);
  fixture.Update({3});
  CHECK_FALSE(fixture.Has(1));
  CHECK(fixture.Has(2));
  fixture.SetBefore(4);
  fixture.Update({4});
  CHECK(fixture.rows() == 1);
}

TEST_CASE("RowEviction: both rules: rows that are too old make room first", "[server][sparse]") {
  Fixture fixture({.after = 2, .rows_max = 50});
  fixture.UpdateRange(0, 40);
  fixture.UpdateRange(100, 110);
  fixture.UpdateRange(200, 240);
  CHECK(fixture.rows() == 50);
  for (const Fixture::Left& left : fixture.left()) CHECK(left.by_age);
  CHECK(fixture.left().size() == 40);
}

}  // namespace
}  // namespace capstan::server::row_eviction_test
