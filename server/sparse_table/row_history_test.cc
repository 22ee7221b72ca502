// Rows that were pinned, read while updates, admission, eviction and the disk go on.
#include "server/sparse_table/row_history.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/random/philox.h"
#include "common/sparse/key_hash.h"
#include "common/testing/status_matchers.h"
#include "server/sparse_table/memory_row_disks.h"
#include "server/sparse_table/row_stamp.h"
#include "server/sparse_table/sparse_rows.h"

namespace capstan::server {
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

// As they are now.
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

// Of a pin, those that an update after version `since` had written.
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
  for (const Pinned& each : pinned) CHECK((PinnedRows(rows, each.pin) == each.rows));
  CHECK((RowsOf(rows) != pinned.back().rows));

  rows.Unpin(pinned[1].pin);
  rows.Unpin(pinned[3].pin);
  advance(10);
  CHECK((PinnedRows(rows, pinned[0].pin) == pinned[0].rows));
  CHECK((PinnedRows(rows, pinned[2].pin) == pinned[2].rows));
  CHECK_STATUS(rows.AppendPinned(pinned[1].pin, std::nullopt, 0, nullptr),
               absl::StatusCode::kAborted, "kept no more");
  rows.Unpin(pinned[0].pin);
  rows.Unpin(pinned[2].pin);
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
    if (place != 0) rows.Pass(kPin, place);
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
}

TEST_CASE("Row history: a disk that fails ends what is pinned, not the updates",
          "[server][sparse]") {
  MemoryRowDisks disks;
  SparseRows rows = MakeRows(&disks);
  int64_t step = 0;
  for (; step < 5; ++step) Update(rows, step, DrawKeys(step));
  rows.Pin(PinId{1});
  disks.write_error = absl::ResourceExhaustedError("the disk is full");
  Update(rows, step++, {DrawKeys(0)[0]});  // Whose body is in memory, and goes on.
  disks.write_error = absl::OkStatus();
  CHECK_STATUS(rows.AppendPinned(PinId{1}, std::nullopt, 0, nullptr),
               absl::StatusCode::kResourceExhausted, "the disk is full");
  CHECK(rows.history().images() == 0);
  rows.Unpin(PinId{1});
  rows.Pin(PinId{2});
  const std::vector<Row> before = RowsOf(rows);
  for (; step < 20; ++step) Update(rows, step, DrawKeys(step));
  CHECK((PinnedRows(rows, PinId{2}) == before));
}

}  // namespace
}  // namespace capstan::server
