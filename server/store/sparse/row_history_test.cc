// Rows that were pinned, read while updates, admission, eviction and the disk go on.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/random/philox.h"
#include "common/sparse/key_hash.h"
#include "common/testing/status_matchers.h"
#include "server/store/kept_rows.h"
#include "server/store/sparse/rows/row_stamp.h"
#include "server/store/sparse/sparse_rows.h"
#include "server/store/sparse/testing/memory_row_disks.h"

namespace capstan::server::row_history_test {
namespace {

constexpr int64_t kDim = 2;

// Rows with state and counts, which come and go. `disks`: most of them lie there.
SparseRows MakeRows(RowDisks* disks) {
  v1::Initializer initializer;
  initializer.set_uniform_bound(0.5f);
  REQUIRE_OK_AND_ASSIGN(
      SparseRows rows,
      SparseRows::Make({.dim = kDim,
                        .buckets = 1,
                        .rule = {.kind = OptimizerKind::kAdam, .learning_rate = 0.1f},
                        .initializer = RowInitializer(initializer, 3, TableId(0), kDim),
                        .admission = {},
                        .eviction = {.after = 40, .rows_max = 2000},
                        .memory_bytes = disks == nullptr ? 0 : 60'000,
                        .disks = disks}));
  return rows;
}

void Update(SparseRows& rows, int64_t step, std::vector<uint64_t> keys) {
  std::sort(keys.begin(), keys.end(),
            [](uint64_t a, uint64_t b) { return KeyHash(a) < KeyHash(b); });
  keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
  const std::vector<float> gradients(keys.size() * kDim, 1.0f + static_cast<float>(step % 7));
  REQUIRE_OK(rows.Update(step, keys, WireValues(gradients)));
}

// Few keys often, others seldom.
std::vector<uint64_t> DrawKeys(int64_t step) {
  std::vector<uint64_t> keys;
  for (uint64_t i = 0; i < 60; ++i) {
    const uint64_t draw = MixKey(static_cast<uint64_t>(step), i);
    keys.push_back(draw % 3 == 0 ? draw % 50 : draw % 3000);
  }
  return keys;
}

using Row = std::pair<uint64_t, std::string>;  // Key; numbers, count and stamp.

void AppendTo(std::vector<Row>* copies, const SparseRows& rows, const SparseRows::RowBatch& batch) {
  for (const SparseRows::Row& row : batch.rows) {
    std::string bytes(reinterpret_cast<const char*>(row.weights),
                      static_cast<size_t>(kDim + rows.state_floats()) * sizeof(float));
    bytes += "," + std::to_string(row.count) + "," + std::to_string(row.stamp);
    copies->emplace_back(row.key, bytes);
  }
}

// The rows as they are now.
std::vector<Row> RowsOf(const SparseRows& rows) {
  std::vector<Row> copies;
  uint64_t place = 0;
  do {
    SparseRows::RowBatch batch;
    place = rows.AppendRows(place, &batch).value();
    AppendTo(&copies, rows, batch);
  } while (place != 0);
  return copies;
}

// The rows of a pin that an update after version `since` had written.
std::vector<Row> PinnedRows(const SparseRows& rows, PinId pin,
                            std::optional<int64_t> since = std::nullopt) {
  std::vector<Row> copies;
  uint64_t place = 0;
  do {
    SparseRows::RowBatch batch;
    place = rows.AppendPinned(pin, since, place, &batch).value();
    AppendTo(&copies, rows, batch);
  } while (place != 0);
  return copies;
}

// Keys and weights of a pin, read by key.
std::vector<Row> PinnedByKey(const SparseRows& rows, PinId pin) {
  std::vector<uint64_t> keys(3000);  // All that are drawn.
  std::iota(keys.begin(), keys.end(), uint64_t{0});
  SparseRows::PinnedRows read;
  REQUIRE_OK(rows.ReadPinned(pin, keys, &read));
  REQUIRE(read.found.size() == keys.size());
  std::vector<Row> copies;
  const float* next = read.weights.data();
  for (size_t i = 0; i < keys.size(); ++i) {
    if (!read.found[i]) continue;
    copies.emplace_back(keys[i],
                        std::string(reinterpret_cast<const char*>(next), kDim * sizeof(float)));
    next += kDim;
  }
  CHECK(next == read.weights.data() + read.weights.size());
  return copies;
}

// The weights of whole rows, in the same form.
std::vector<Row> WeightsByKey(std::vector<Row> rows) {
  for (Row& row : rows) row.second.resize(kDim * sizeof(float));
  std::sort(rows.begin(), rows.end());
  return rows;
}

TEST_CASE("Row history: pinned rows are as they were, whatever happens meanwhile",
          "[server][sparse]") {
  MemoryRowDisks disks;
  SparseRows rows = MakeRows(GENERATE(false, true) ? &disks : nullptr);
  int64_t step = 0;
  const auto advance = [&](int64_t steps) {
    for (int64_t i = 0; i < steps; ++i, ++step) Update(rows, step, DrawKeys(step));
  };
  advance(100);
  struct Pinned {
    PinId pin{};
    std::vector<Row> rows;
  };
  std::vector<Pinned> pinned;
  for (uint64_t id = 1; id <= 4; ++id) {
    pinned.push_back({.pin = PinId{id}, .rows = RowsOf(rows)});
    rows.Pin(PinId{id});
    CHECK((PinnedRows(rows, PinId{id}) == pinned.back().rows));
    advance(15);
  }
  advance(60);  // None of the first rows is there as it was; most have left.
  for (const Pinned& each : pinned) {
    CHECK((PinnedRows(rows, each.pin) == each.rows));
    CHECK((PinnedByKey(rows, each.pin) == WeightsByKey(each.rows)));
  }
  CHECK((RowsOf(rows) != pinned.back().rows));

  rows.history().Unpin(pinned[1].pin);
  rows.history().Unpin(pinned[3].pin);
  advance(10);
  CHECK((PinnedRows(rows, pinned[0].pin) == pinned[0].rows));
  CHECK((PinnedRows(rows, pinned[2].pin) == pinned[2].rows));
  CHECK_STATUS(rows.AppendPinned(pinned[1].pin, std::nullopt, 0, nullptr),
               absl::StatusCode::kAborted, "kept no more");
  rows.history().Unpin(pinned[0].pin);
  rows.history().Unpin(pinned[2].pin);
  CHECK(rows.history().images() == 0);
  CHECK(rows.history().bytes() == 0);
}

TEST_CASE("Row history: of what is pinned, what had changed since an earlier version",
          "[server][sparse]") {
  SparseRows rows = MakeRows(nullptr);
  int64_t step = 0;
  for (; step < 100; ++step) Update(rows, step, DrawKeys(step));
  rows.Pin(PinId{1});
  const std::vector<Row> changed = PinnedRows(rows, PinId{1}, 90);
  CHECK(static_cast<int64_t>(changed.size()) == rows.CountChanged(90));
  CHECK(changed.size() < RowsOf(rows).size());
  for (; step < 150; ++step) Update(rows, step, DrawKeys(step));
  CHECK((PinnedRows(rows, PinId{1}, 90) == changed));
}

TEST_CASE("Row history: who reads in order has kept for it only what is to come",
          "[server][sparse]") {
  MemoryRowDisks disks;
  SparseRows rows = MakeRows(GENERATE(false, true) ? &disks : nullptr);
  int64_t step = 0;
  for (; step < 100; ++step) Update(rows, step, DrawKeys(step));
  const std::vector<Row> before = RowsOf(rows);
  constexpr PinId kPin{7};
  rows.Pin(kPin);
  std::vector<Row> read;
  uint64_t place = 0;
  int64_t images_max = 0;
  do {
    for (int i = 0; i < 10; ++i, ++step) Update(rows, step, DrawKeys(step));
    images_max = std::max(images_max, rows.history().images());
    SparseRows::RowBatch batch;
    place = rows.AppendPinned(kPin, std::nullopt, place, &batch).value();
    AppendTo(&read, rows, batch);
    if (place != 0) rows.history().Pass(kPin, place);
  } while (place != 0);
  CHECK((read == before));
  CHECK(images_max > 100);
  CHECK(rows.history().images() < images_max);
}

TEST_CASE("Row history: stamps that are renewed are those of the moment", "[server][sparse]") {
  SparseRows rows = MakeRows(nullptr);
  Update(rows, 0, {1});
  for (int64_t version = kRenewEvery; version <= 2 * kRenewEvery; version += kRenewEvery) {
    Update(rows, version - 1, {1});
  }
  Update(rows, 3 * kRenewEvery - 2, {2});
  const std::vector<Row> before = RowsOf(rows);
  rows.Pin(PinId{1});
  Update(rows, 3 * kRenewEvery - 1, {3});
  CHECK((PinnedRows(rows, PinId{1}) == before));
  CHECK((PinnedByKey(rows, PinId{1}) == WeightsByKey(before)));
}

TEST_CASE("Row history: a version that is too long ago for stamps to tell ends by name",
          "[server][sparse]") {
  SparseRows rows = MakeRows(nullptr);
  Update(rows, 0, {1});
  rows.Pin(PinId{1});  // Pins version 1.
  Update(rows, kAgeMax, {2});
  CHECK(PinnedByKey(rows, PinId{1}).size() == 1);
  Update(rows, kAgeMax + 1, {2});
  SparseRows::PinnedRows read;
  CHECK_STATUS(rows.ReadPinned(PinId{1}, {1}, &read), absl::StatusCode::kAborted,
               "version 1 is 2147483649 updates ago");
  CHECK_STATUS(rows.AppendPinned(PinId{1}, std::nullopt, 0, nullptr), absl::StatusCode::kAborted,
               "expected at most 2147483648");
}

// Room for so many bytes.
struct Account final : KeptRowsAccount {
  absl::Status Resize(int64_t from, int64_t to) override {
    if (to > from && held + to - from > room) return absl::ResourceExhaustedError("no room");
    held += to - from;
    return absl::OkStatus();
  }
  int64_t room = 0;
  int64_t held = 0;
};

TEST_CASE("Row history: what is kept for readers is accounted for, and ends without room",
          "[server][sparse]") {
  const auto account = std::make_shared<Account>();
  account->room = 40'000;
  {
    SparseRows rows = MakeRows(nullptr);
    int64_t step = 0;
    for (; step < 60; ++step) Update(rows, step, DrawKeys(step));
    rows.Pin(PinId{1});
    Update(rows, step, DrawKeys(step));
    ++step;
    CHECK(account->held == 0);  // A checkpoint's is on nobody's account,
    const std::vector<Row> then = RowsOf(rows);
    rows.Pin(PinId{2}, account);
    CHECK(account->held == rows.history().bytes());  // until a reader needs what is kept.
    rows.history().Unpin(PinId{2});
    CHECK(account->held == 0);
    rows.Pin(PinId{3}, account);
    CHECK((PinnedRows(rows, PinId{3}) == then));
    for (; step < 200; ++step) Update(rows, step, DrawKeys(step));
    CHECK(account->held == 0);
    CHECK_STATUS(rows.AppendPinned(PinId{3}, std::nullopt, 0, nullptr),
                 absl::StatusCode::kResourceExhausted, "no room");
    CHECK(rows.history().bytes() > account->room);  // The checkpoint goes on.
    CHECK(!PinnedRows(rows, PinId{1}).empty());
    rows.history().Unpin(PinId{1});
    rows.Pin(PinId{4}, account);
    Update(rows, step, DrawKeys(step));
    CHECK(account->held > 0);
  }
  CHECK(account->held == 0);  // Gone with the rows.
}

TEST_CASE("Row history: a disk that fails ends what is pinned, not the updates",
          "[server][sparse]") {
  MemoryRowDisks disks;
  SparseRows rows = MakeRows(&disks);
  int64_t step = 0;
  for (; step < 5; ++step) Update(rows, step, DrawKeys(step));
  rows.Pin(PinId{1});
  disks.write_error = absl::ResourceExhaustedError("the disk is full");
  Update(rows, step++, {DrawKeys(0)[0]});  // The row's payload is in memory, and goes on.
  disks.write_error = absl::OkStatus();
  CHECK_STATUS(rows.AppendPinned(PinId{1}, std::nullopt, 0, nullptr),
               absl::StatusCode::kResourceExhausted, "the disk is full");
  CHECK(rows.history().images() == 0);
  rows.history().Unpin(PinId{1});
  rows.Pin(PinId{2});
  const std::vector<Row> before = RowsOf(rows);
  for (; step < 20; ++step) Update(rows, step, DrawKeys(step));
  CHECK((PinnedRows(rows, PinId{2}) == before));
}

}  // namespace
}  // namespace capstan::server::row_history_test
