#include "worker/core/row_cache.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <memory>
#include <vector>

#include "common/examples/zipf.h"
#include "common/random/philox.h"

namespace capstan::worker::row_cache_test {
namespace {

constexpr int64_t kDim = 2;
constexpr Generation kMembers{3};

std::shared_ptr<const KeyBatch> BatchOf(const std::vector<uint64_t>& keys) {
  return std::make_shared<const KeyBatch>(MakeKeyBatch(keys, 4));
}

// A cache, and servers whose rows contain the number of the pull that brought them.
struct Fixture {
  explicit Fixture(const RowCache::Options& options) : cache(options) {}

  // Returns the keys that must be pulled, ascending. The other rows are in `rows`.
  std::vector<uint64_t> Begin(int64_t iteration, const std::vector<uint64_t>& keys) {
    batch = BatchOf(keys);
    rows.assign(static_cast<size_t>(batch->size() * kDim), -1.0f);
    const WantedKeys wanted = cache.Begin(batch, Iteration(iteration), absl::MakeSpan(rows));
    ++pulls;
    std::vector<uint64_t> pulled;
    for (const uint32_t place : wanted.places) {
      pulled.push_back(batch->keys[place]);
      std::fill_n(rows.begin() + place * kDim, kDim, static_cast<float>(pulls));
    }
    std::sort(pulled.begin(), pulled.end());
    return pulled;
  }
  RowsRead End(int64_t staleness, Generation membership = kMembers) {
    return cache.End({.staleness = staleness, .membership = membership}, rows);
  }
  std::vector<uint64_t> Pull(int64_t iteration, const std::vector<uint64_t>& keys,
                             int64_t staleness = 1) {
    std::vector<uint64_t> pulled = Begin(iteration, keys);
    CHECK_FALSE(End(staleness).again);
    return pulled;
  }
  float RowOf(uint64_t key) const {
    const auto at = std::find(batch->keys.begin(), batch->keys.end(), key) - batch->keys.begin();
    return rows[static_cast<size_t>(at * kDim + 1)];
  }

  RowCache cache;
  std::shared_ptr<const KeyBatch> batch;
  std::vector<float> rows;
  int pulls = 0;
};

using Keys = std::vector<uint64_t>;

TEST_CASE("Row cache: a row is used while the bound lets it, then pulled again", "[worker][core]") {
  Fixture fixture({.rows_max = 10, .dim = kDim, .bound = 3});
  CHECK(fixture.Pull(10, {1, 2}, /*staleness=*/1) == Keys{1, 2});  // Floor 9: used up to 12.
  CHECK(fixture.Pull(11, {1, 3}, /*staleness=*/2) == Keys{3});     // Floor 9: used up to 12.
  CHECK(fixture.RowOf(1) == 1.0f);
  CHECK(fixture.RowOf(3) == 2.0f);
  CHECK(fixture.Pull(12, {1, 2, 3}) == Keys{});
  CHECK(fixture.Pull(13, {1, 2, 3}) == Keys{1, 2, 3});
  CHECK(fixture.RowOf(1) == 4.0f);
}

TEST_CASE("Row cache: what it gave counts in the staleness that was read", "[worker][core]") {
  Fixture fixture({.rows_max = 10, .dim = kDim, .bound = 5});
  fixture.Pull(10, {1}, /*staleness=*/2);  // Floor 8.
  fixture.Pull(11, {2}, /*staleness=*/1);  // Floor 10.
  CHECK(fixture.Begin(12, {2, 3}) == Keys{3});
  RowsRead read = fixture.End(1);
  CHECK(read.staleness == 2);
  CHECK(read.cached == 1);
  CHECK(read.pulled == 1);
  CHECK(fixture.Begin(13, {1, 2}) == Keys{});
  read = fixture.End(1);
  CHECK(read.staleness == 5);
  CHECK(read.cached == 2);
  CHECK(read.pulled == 0);
}

TEST_CASE("Row cache: without clocks a row has an age alone", "[worker][core]") {
  Fixture fixture({.rows_max = 10, .dim = kDim, .by_floor = false, .bound = 2});
  CHECK(fixture.Begin(10, {1}) == Keys{1});
  CHECK_FALSE(fixture.End(/*staleness=*/40, Generation(0)).again);
  CHECK(fixture.Begin(12, {1}) == Keys{});
  const RowsRead read = fixture.End(/*staleness=*/30, Generation(9));
  CHECK_FALSE(read.again);
  CHECK(read.staleness == 42);
  CHECK(fixture.Pull(13, {1}) == Keys{1});
}

TEST_CASE("Row cache: rows that the bound makes useless at once are not kept", "[worker][core]") {
  Fixture fixture({.rows_max = 10, .dim = kDim, .bound = 1});
  fixture.Pull(10, {1, 2}, /*staleness=*/1);
  CHECK(fixture.cache.rows() == 0);
}

TEST_CASE("Row cache: another membership drops all, and what was given is asked for again",
          "[worker][core]") {
  Fixture fixture({.rows_max = 10, .dim = kDim, .bound = 5});
  fixture.Pull(10, {1, 2});
  CHECK(fixture.Begin(11, {1, 3}) == Keys{3});
  CHECK(fixture.End(1, Generation(4)).again);
  CHECK(fixture.cache.rows() == 0);
  CHECK(fixture.Begin(11, {1, 3}) == Keys{1, 3});
  CHECK_FALSE(fixture.End(1, Generation(4)).again);
  CHECK(fixture.Begin(12, {1, 3}) == Keys{});
  CHECK_FALSE(fixture.End(1, Generation(4)).again);
}

TEST_CASE("Row cache: while servers know different memberships, or none, nothing is kept",
          "[worker][core]") {
  Fixture fixture({.rows_max = 10, .dim = kDim, .bound = 5});
  CHECK(fixture.Begin(10, {1}) == Keys{1});
  CHECK_FALSE(fixture.End(0, Generation(0)).again);
  CHECK(fixture.Begin(11, {1}) == Keys{1});
  CHECK_FALSE(fixture.End(0).again);
  CHECK(fixture.Begin(12, {1}) == Keys{});
  CHECK(fixture.End(0, Generation(0)).again);
  CHECK(fixture.Begin(12, {1}) == Keys{1});
  CHECK_FALSE(fixture.End(0, Generation(0)).again);
  CHECK(fixture.cache.rows() == 0);
}

TEST_CASE("Row cache: a pull that was given up leaves nothing behind", "[worker][core]") {
  Fixture fixture({.rows_max = 10, .dim = kDim, .bound = 5});
  fixture.Begin(10, {1, 2, 3});
  CHECK(fixture.Pull(10, {3, 4}) == Keys{3, 4});
  CHECK(fixture.Pull(11, {1, 2, 3, 4}) == Keys{1, 2});
  CHECK(fixture.RowOf(3) == 2.0f);
}

TEST_CASE("Row cache: what is in every batch stays, however many others come", "[worker][core]") {
  Fixture fixture({.rows_max = 20, .dim = kDim, .by_floor = false, .bound = 4});
  uint64_t next = 1000;
  int64_t cached = 0;
  for (int64_t iteration = 0; iteration < 200; ++iteration) {
    Keys keys;
    for (uint64_t key = 0; key < 10; ++key) keys.push_back(key);
    for (int i = 0; i < 50; ++i) keys.push_back(next++);
    fixture.Begin(iteration, keys);
    cached += fixture.End(1).cached;
    CHECK(fixture.cache.rows() <= 20);
  }
  CHECK(cached >= 10 * 4 * 190 / 5);  // Four of five reads hit, after a while.
}

// The expected state of a cached row.
struct Known {
  float value = 0;
  int64_t until = 0;
  int64_t floor = 0;
};

TEST_CASE("Row cache: against a model, over random pulls", "[worker][core]") {
  const uint64_t seed = GENERATE(range(uint64_t{1}, uint64_t{60}));
  uint64_t draws = 0;
  const auto draw = [&](uint64_t bound) { return MixKey(seed, draws++) % bound; };
  const RowCache::Options options{.rows_max = static_cast<int64_t>(1 + draw(40)),
                                  .dim = kDim,
                                  .by_floor = draw(2) == 0,
                                  .bound = static_cast<int64_t>(draw(6))};
  Fixture fixture(options);
  std::map<uint64_t, Known> model;  // The newest state for each key.
  uint64_t membership = 1;
  uint64_t seen = 0;
  for (int64_t iteration = 0; iteration < 200; ++iteration) {
    Keys keys;
    for (uint64_t i = draw(30); i > 0; --i) keys.push_back(draw(1 + draw(100)));
    if (draw(20) == 0) ++membership;
    const int64_t staleness = static_cast<int64_t>(draw(4));
    const Keys pulled = fixture.Begin(iteration, keys);
    int64_t oldest = iteration - staleness;
    bool any_cached = false;
    for (const uint64_t key : fixture.batch->keys) {
      if (std::binary_search(pulled.begin(), pulled.end(), key)) continue;
      any_cached = true;
      REQUIRE(model.contains(key));
      CHECK(model[key].until >= iteration);
      CHECK(fixture.RowOf(key) == model[key].value);
      oldest = std::min(oldest, model[key].floor);
    }
    if (draw(10) == 0) continue;  // The pull is given up.
    const RowsRead read = fixture.End(staleness, Generation(membership));
    const bool expected_again = options.by_floor && membership != seen && any_cached;
    CHECK(read.again == expected_again);
    if (options.by_floor && membership != seen) model.clear();
    seen = membership;
    if (read.again) continue;
    CHECK(read.staleness == iteration - oldest);
    CHECK(fixture.cache.rows() <= options.rows_max);
    const int64_t floor = iteration - staleness;
    for (const uint64_t key : pulled) {
      model[key] = {.value = fixture.RowOf(key),
                    .until = (options.by_floor ? floor : iteration) + options.bound,
                    .floor = floor};
    }
  }
}

TEST_CASE("Row cache: keys by Zipf's law find most of what a larger cache would",
          "[worker][core]") {
  const Zipf zipf(1'000'000, 1.05);
  const auto hits = [&](int64_t rows_max) {
    Fixture fixture({.rows_max = rows_max, .dim = kDim, .by_floor = false, .bound = 8});
    uint64_t draws = 0;
    const auto uniform = [&draws] {
      return static_cast<double>(MixKey(7, draws++) >> 11) * 0x1p-53;
    };
    int64_t cached = 0, all = 0;
    for (int64_t iteration = 0; iteration < 60; ++iteration) {
      Keys keys;
      for (int i = 0; i < 2000; ++i) keys.push_back(zipf.Draw(uniform));
      fixture.Begin(iteration, keys);
      const RowsRead read = fixture.End(1);
      cached += read.cached;
      all += read.cached + read.pulled;
    }
    return static_cast<double>(cached) / static_cast<double>(all);
  };
  const double unlimited = hits(1'000'000);
  const double small = hits(1000);  // About one batch's keys.
  INFO("unlimited " << unlimited << ", 1000 rows " << small);
  CHECK(small > 0.6 * unlimited);
}

}  // namespace
}  // namespace capstan::worker::row_cache_test
