// When keys get rows and lose them, against a model that does the same with a std::map.
#include <algorithm>
#include <bit>
#include <catch2/catch.hpp>
#include <cstdint>
#include <map>
#include <vector>

#include "common/random/philox.h"
#include "common/sparse/key_hash.h"
#include "common/testing/status_matchers.h"
#include "server/store/sparse/rows/row_stamp.h"
#include "server/store/sparse/sparse_rows.h"
#include "server/store/sparse/testing/memory_row_disks.h"

namespace capstan::server::row_lifetime_test {
namespace {

constexpr int64_t kDim = 3;

SparseRows::Config ConfigOf(const RowAdmission::Config& admission,
                            const RowEviction::Config& eviction) {
  v1::Initializer initializer;
  initializer.set_uniform_bound(0.5f);
  return {.dim = kDim,
          .buckets = 1,
          .rule = {.kind = OptimizerKind::kSgd, .learning_rate = 1.0f},
          .initializer = RowInitializer(initializer, 3, TableId(0), kDim),
          .admission = admission,
          .eviction = eviction};
}

SparseRows MakeRows(const SparseRows::Config& config) {
  REQUIRE_OK_AND_ASSIGN(SparseRows rows, SparseRows::Make(config));
  return rows;
}

// The specification. Counts of pushes are exact: filters under test are far larger than needed.
class NaiveRows {
 public:
  explicit NaiveRows(const SparseRows::Config& config) : config_(config) {}

  std::vector<float> Read(uint64_t key) const {
    const auto it = rows_.find(KeyHash(key));
    return it == rows_.end() ? Initial(key) : it->second.weights;
  }
  void Update(int64_t step, const std::vector<uint64_t>& keys, float gradient) {
    const int64_t version = step + 1;
    int64_t made = 0;
    for (const uint64_t key : keys) {
      auto it = rows_.find(KeyHash(key));
      if (it == rows_.end()) {
        if (!Admits(key, version)) {
          ++refused;
          continue;
        }
        it = rows_.insert({KeyHash(key), {.weights = Initial(key)}}).first;
        ++made;
      }
      for (float& w : it->second.weights) w -= gradient;
      it->second.version = version;
    }
    Evict(version, made);
  }
  void SetEvictBefore(int64_t version) { before_ = version; }
  int64_t rows() const { return static_cast<int64_t>(rows_.size()); }

  int64_t refused = 0;
  int64_t evicted = 0;

 private:
  struct Row {
    std::vector<float> weights;
    int64_t version = 0;
  };
  using Rows = std::map<uint64_t, Row>;  // Keyed by place: there is one bucket.

  std::vector<float> Initial(uint64_t key) const {
    std::vector<float> row(kDim);
    config_.initializer.Fill({key}, {row.data()});
    return row;
  }
  bool Admits(uint64_t key, int64_t version) {
    const RowAdmission::Config& rule = config_.admission;
    int& pushes = pushes_[key];
    if (pushes + 1 < rule.after) return ++pushes, false;
    const uint32_t draw = Philox4x32(rule.stream, key, static_cast<uint64_t>(version))[0];
    return static_cast<double>(draw) < static_cast<double>(rule.probability) * 0x1p32;
  }
  // Cells of 64 to 128 rows, from the hand on, until 64 rows and four a new one are seen, and
  // enough that may leave.
  void Evict(int64_t version, int64_t made) {
    const RowEviction::Config& rule = config_.eviction;
    const auto over = [&] { return rule.rows_max == 0 ? 0 : rows() - rule.rows_max; };
    if (rule.after == 0 && before_ == 0 && over() <= 0) return;
    const auto cells = static_cast<uint64_t>(std::max<int64_t>(1, rows() / 64));
    const int bits = static_cast<int>(std::bit_width(cells)) - 1;
    std::vector<std::pair<int64_t, uint64_t>> others;  // Version, place.
    int64_t seen = 0;
    for (int64_t cell = 0; cell < int64_t{1} << bits; ++cell) {
      if (seen >= 64 + 4 * made && static_cast<int64_t>(others.size()) >= over()) break;
      const uint64_t first = bits == 0 ? 0 : hand_ >> (64 - bits) << (64 - bits);
      const uint64_t last = first + (~uint64_t{0} >> bits);
      hand_ = last + 1;
      for (auto it = rows_.lower_bound(first); it != rows_.end() && it->first <= last;) {
        ++seen;
        const int64_t age = version - it->second.version;
        if ((rule.after > 0 && age >= rule.after) || it->second.version < before_) {
          it = rows_.erase(it);
          ++evicted;
          continue;
        }
        if (age > 0) others.emplace_back(it->second.version, it->first);
        ++it;
      }
    }
    std::sort(others.begin(), others.end());
    for (size_t i = 0; i < others.size() && over() > 0; ++i) {
      rows_.erase(others[i].second);
      ++evicted;
    }
  }

  SparseRows::Config config_;
  Rows rows_;
  std::map<uint64_t, int> pushes_;
  uint64_t hand_ = 0;
  int64_t before_ = 0;
};

// Keys of a random update, in the order of messages: few of many, some of them often.
std::vector<uint64_t> DrawKeys(uint64_t seed, uint64_t step, uint64_t keys_max) {
  std::vector<uint64_t> keys;
  const uint64_t count = MixKey(seed, step) % 80;
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t draw = MixKey(MixKey(seed, step), i);
    keys.push_back(draw % (draw >> 60 < 8 ? keys_max : keys_max / 20));
  }
  std::sort(keys.begin(), keys.end(),
            [](uint64_t a, uint64_t b) { return KeyHash(a) < KeyHash(b); });
  keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
  return keys;
}

void Update(SparseRows& rows, int64_t step, const std::vector<uint64_t>& keys,
            SparseRows::Effects* effects = nullptr) {
  const std::vector<float> gradients(keys.size() * kDim, 0.25f);
  REQUIRE_OK(rows.Update(step, keys, WireValues(gradients), effects));
}

std::vector<float> Read(const SparseRows& rows, uint64_t key) {
  std::vector<float> row(kDim);
  REQUIRE_OK(rows.Read({key}, row.data()));
  return row;
}

TEST_CASE("Row lifetime: the same rows as a model in a map, whatever the rules",
          "[server][sparse]") {
  constexpr uint64_t kKeys = 3000;
  const int32_t admit_after = GENERATE(1, 2, 5);
  const float probability = GENERATE(1.0f, 0.3f);
  const RowEviction::Config eviction = GENERATE(
      RowEviction::Config{}, RowEviction::Config{.after = 15}, RowEviction::Config{.rows_max = 150},
      RowEviction::Config{.after = 40, .rows_max = 500}, RowEviction::Config{.rows_max = 1},
      RowEviction::Config{.by_time = true},
      RowEviction::Config{.after = 40, .rows_max = 500, .by_time = true});
  CAPTURE(admit_after, probability, eviction.after, eviction.rows_max, eviction.by_time);
  SparseRows::Config config = ConfigOf(
      {.after = admit_after, .filter_keys = 200'000, .probability = probability, .stream = 9},
      eviction);
  MemoryRowDisks disks;
  config.memory_bytes = GENERATE(0, 1);  // Sixteen payloads have room in any case.
  config.disks = &disks;
  SparseRows rows = MakeRows(config);
  NaiveRows expected(config);
  for (int64_t step = 0; step < 300; ++step) {
    const std::vector<uint64_t> keys = DrawKeys(5, static_cast<uint64_t>(step), kKeys);
    if (eviction.by_time && step % 10 == 0 && step > 30) {
      rows.PrepareUpdates(/*learning_rate_factor=*/1, step - 20);
      expected.SetEvictBefore(step - 20);
    }
    Update(rows, step, keys);
    expected.Update(step, keys, 0.25f);
    if (rows.rows() != expected.rows()) FAIL("step " << step);
  }
  int64_t wrong = 0;
  for (uint64_t key = 0; key < kKeys; ++key) wrong += Read(rows, key) != expected.Read(key);
  CHECK(wrong == 0);
  const v1::RowCounts counts = rows.lifetime().counts;
  CHECK(counts.held() == rows.rows());
  CHECK(counts.refused() == expected.refused);
  CHECK(counts.evicted_by_age() + counts.evicted_by_limit() == expected.evicted);
  CHECK(counts.admitted() == rows.rows() + expected.evicted);
  CHECK((disks.read > 0) == (config.memory_bytes > 0));
  if (eviction.may_evict()) CHECK(expected.evicted > 20);
}

TEST_CASE("Row lifetime: an update tells whom it has refused and evicted", "[server][sparse]") {
  SparseRows::Config config = ConfigOf({.after = 2, .filter_keys = 1000}, {.after = 2});
  MemoryRowDisks disks;
  config.memory_bytes = GENERATE(0, 1);
  config.disks = &disks;
  SparseRows rows = MakeRows(config);
  SparseRows::Effects effects;
  Update(rows, 0, {1, 2}, &effects);
  CHECK(effects.refused == std::vector<size_t>{0, 1});
  effects = {};
  Update(rows, 1, {2, 3}, &effects);
  CHECK(effects.refused == std::vector<size_t>{1});
  CHECK(effects.evicted.empty());
  const std::vector<float> weights = Read(rows, 2);
  effects = {};
  Update(rows, 2, {}, &effects);
  Update(rows, 3, {}, &effects);
  CHECK(effects.evicted == std::vector<uint64_t>{2});
  CHECK(effects.evicted_weights == weights);
  CHECK(Read(rows, 2) != weights);  // The initial ones.
}

TEST_CASE("Row lifetime: a row that comes back starts anew", "[server][sparse]") {
  SparseRows rows = MakeRows(ConfigOf({}, {.after = 1}));
  Update(rows, 0, {7});
  const std::vector<float> once = Read(rows, 7);
  Update(rows, 1, {8});
  Update(rows, 2, {7});
  CHECK(Read(rows, 7) == once);
  CHECK(rows.rows() == 1);
}

TEST_CASE("Row lifetime: memory of rows that have left is used again", "[server][sparse]") {
  SparseRows rows = MakeRows(ConfigOf({}, {.rows_max = 2000}));
  int64_t bytes = 0;
  for (int64_t step = 0; step < 400; ++step) {
    std::vector<uint64_t> keys;
    for (uint64_t i = 0; i < 100; ++i) keys.push_back(static_cast<uint64_t>(step) * 100 + i);
    Update(rows, step, keys);
    if (step == 40) bytes = rows.bytes();
  }
  CHECK(rows.rows() == 2000);
  CHECK(rows.bytes() <= bytes * 5 / 4);
}

TEST_CASE("Row lifetime: rows are told that have changed since a version", "[server][sparse]") {
  const int64_t first = GENERATE(int64_t{0}, (int64_t{1} << 32) - 5);
  SparseRows rows = MakeRows(ConfigOf({}, {}));
  for (int64_t i = 0; i < 10; ++i) {
    Update(rows, first + i, {static_cast<uint64_t>(i), 100});
  }
  constexpr PinId kNow{1};
  rows.Pin(kNow);
  const auto changed = [&](int64_t since) {
    SparseRows::RowBatch told;
    uint64_t place = 0;
    do {
      place = rows.AppendPinned(kNow, since, place, &told).value();
    } while (place != 0);
    CHECK(rows.CountChanged(since) == static_cast<int64_t>(told.rows.size()));
    std::vector<uint64_t> keys;
    for (const SparseRows::Row& row : told.rows) keys.push_back(row.key);
    std::sort(keys.begin(), keys.end());
    return keys;
  };
  CHECK(changed(first + 10).empty());
  CHECK(changed(first + 9) == std::vector<uint64_t>{9, 100});
  CHECK(changed(first + 7) == std::vector<uint64_t>{7, 8, 9, 100});
  CHECK(changed(first).size() == 11);
}

TEST_CASE("Row lifetime: an old row does not become young when stamps wrap", "[server][sparse]") {
  SparseRows rows = MakeRows(ConfigOf({}, {}));
  Update(rows, 0, {1});
  SparseRows::RowBatch batch;
  std::vector<SparseRows::Row>& row = batch.rows;
  for (int64_t version = kRenewEvery; version <= 5 * kRenewEvery; version += kRenewEvery) {
    Update(rows, version - 1, {});
    row.clear();
    REQUIRE_OK(rows.AppendRows(0, &batch));
    const int64_t age = AgeOf(row.at(0).stamp, version);
    CHECK(age == std::min(version - 1, kAgeMax));
    CHECK(rows.CountChanged(version - 1000) == 0);
    CHECK(rows.CountChanged(0) == 1);
  }
}

}  // namespace
}  // namespace capstan::server::row_lifetime_test
