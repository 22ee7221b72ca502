#include "server/store/sparse/sparse_rows.h"

#include <catch2/catch.hpp>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "common/random/philox.h"
#include "common/sparse/key_hash.h"
#include "common/testing/status_matchers.h"
#include "server/optimizer/testing/reference.h"
#include "server/store/sparse/testing/memory_row_disks.h"

namespace capstan::server::sparse_rows_test {
namespace {

using Kind = OptimizerKind;

v1::Initializer Uniform() {
  v1::Initializer initializer;
  initializer.set_uniform_bound(0.5f);
  return initializer;
}

SparseRows::Config ConfigOf(Kind kind, int64_t dim, int32_t buckets = 1) {
  return {.dim = dim,
          .buckets = buckets,
          .rule = {.kind = kind, .learning_rate = 0.1f, .initial_accumulator = 0.5f},
          .initializer = RowInitializer(Uniform(), 3, TableId(0), dim)};
}

std::vector<float> Gradients(uint64_t seed, int64_t count) {
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) {
    values.push_back(ToUnitFloat(PhiloxWord(seed, static_cast<uint64_t>(i))) - 0.5f);
  }
  return values;
}

// The specification: a row at a time, in a std::map.
class NaiveRows {
 public:
  explicit NaiveRows(const SparseRows::Config& config) : config_(config) {}

  std::vector<float> Read(const std::vector<uint64_t>& keys) const {
    std::vector<float> out;
    for (const uint64_t key : keys) {
      const auto it = rows_.find(key);
      const std::vector<float> row = it == rows_.end() ? Initial(key) : it->second.weights;
      out.insert(out.end(), row.begin(), row.end());
    }
    return out;
  }
  void Update(int64_t step, const std::vector<uint64_t>& keys,
              const std::vector<float>& gradients) {
    for (size_t i = 0; i < keys.size(); ++i) {
      const auto [it, is_new] = rows_.try_emplace(keys[i]);
      Row& row = it->second;
      if (is_new) {
        row.weights = Initial(keys[i]);
        const OptimizerConfig& rule = config_.rule;
        for (int64_t at = 0; at < StateFloats(config_.rule, config_.dim); at += config_.dim) {
          row.state.emplace_back(config_.dim, rule.kind == Kind::kAdagrad ? 0.5f : 0.0f);
        }
      }
      std::vector<float*> state;
      for (std::vector<float>& slot : row.state) state.push_back(slot.data());
      // The rate is constant: Adam's step is that of the row's own count.
      ApplyReference(config_.rule, CountsUpdates(config_.rule) ? row.updates++ : step, config_.dim,
                     row.weights.data(), gradients.data() + static_cast<int64_t>(i) * config_.dim,
                     state, row.weights.data());
    }
  }
  int64_t rows() const { return static_cast<int64_t>(rows_.size()); }

 private:
  struct Row {
    std::vector<float> weights;
    std::vector<std::vector<float>> state;
    int64_t updates = 0;
  };
  std::vector<float> Initial(uint64_t key) const {
    std::vector<float> row(static_cast<size_t>(config_.dim));
    config_.initializer.Fill({key}, {row.data()});
    return row;
  }
  SparseRows::Config config_;
  std::map<uint64_t, Row> rows_;
};

std::vector<float> ReadRows(const SparseRows& rows, const std::vector<uint64_t>& keys) {
  std::vector<float> out(keys.size() * static_cast<size_t>(rows.dim()));
  REQUIRE_OK(rows.Read(keys, out.data()));
  return out;
}

TEST_CASE("SparseRows: the same numbers as one row at a time in a map", "[server][sparse]") {
  const Kind kind = GENERATE(Kind::kSgd, Kind::kMomentum, Kind::kAdagrad, Kind::kAdam, Kind::kFtrl,
                             Kind::kLion, Kind::kAmsGrad, Kind::kAdadelta);
  const int64_t dim = GENERATE(1, 5, 16, 100);
  CAPTURE(static_cast<int>(kind), dim);
  SparseRows::Config config = ConfigOf(kind, dim);
  MemoryRowDisks disks;
  config.memory_bytes = GENERATE(0, 1, 30'000);
  config.disks = &disks;
  REQUIRE_OK_AND_ASSIGN(SparseRows rows, SparseRows::Make(config));
  NaiveRows expected(config);
  for (int64_t step = 0; step < 8; ++step) {
    std::vector<uint64_t> keys;
    for (uint64_t i = 0; i < 300; ++i) {  // Some are new in each step, some not; no order.
      if (i % 7 != static_cast<uint64_t>(step))
        keys.push_back((i + step * 100) * 0x9E3779B97F4A7C15);
    }
    const std::vector<float> gradients =
        Gradients(static_cast<uint64_t>(step), static_cast<int64_t>(keys.size()) * dim);
    CHECK(ReadRows(rows, keys) == expected.Read(keys));
    REQUIRE_OK(rows.Update(step, keys, WireValues(gradients)));
    expected.Update(step, keys, gradients);
    CHECK(ReadRows(rows, keys) == expected.Read(keys));
  }
  CHECK(rows.rows() == expected.rows());
}

TEST_CASE("SparseRows: reading makes no row", "[server][sparse]") {
  REQUIRE_OK_AND_ASSIGN(const SparseRows rows, SparseRows::Make(ConfigOf(Kind::kSgd, 4)));
  const std::vector<float> read = ReadRows(rows, {1, 2, 3, ~uint64_t{0}});
  CHECK(read.size() == 16);
  CHECK(rows.rows() == 0);
  CHECK(read == ReadRows(rows, {1, 2, 3, ~uint64_t{0}}));
}

TEST_CASE("SparseRows: a row is the same whatever the number of buckets", "[server][sparse]") {
  std::vector<std::vector<float>> seen;
  for (const int32_t buckets : {1, 5}) {
    std::vector<SparseRows> parts;
    for (int32_t b = 0; b < buckets; ++b) {
      REQUIRE_OK_AND_ASSIGN(SparseRows part,
                            SparseRows::Make(ConfigOf(Kind::kAdagrad, 3, buckets)));
      parts.push_back(std::move(part));
    }
    std::vector<float> numbers;
    for (uint64_t key = 0; key < 500; ++key) {
      SparseRows& part = parts[static_cast<size_t>(PlaceOf(KeyHash(key), buckets).bucket)];
      const std::vector<float> gradient = Gradients(key, 3);
      REQUIRE_OK(part.Update(0, {key}, WireValues(gradient)));
      const std::vector<float> row = ReadRows(part, {key});
      numbers.insert(numbers.end(), row.begin(), row.end());
    }
    seen.push_back(std::move(numbers));
  }
  CHECK(seen[0] == seen[1]);
}

TEST_CASE("SparseRows: a row costs little beside its key, values and state", "[server][sparse]") {
  REQUIRE_OK_AND_ASSIGN(SparseRows rows, SparseRows::Make(ConfigOf(Kind::kAdagrad, 16)));
  constexpr uint64_t kRows = 100'000;
  const std::vector<float> zeros(64 * 16);
  for (uint64_t key = 0; key < kRows; key += 50) {
    std::vector<uint64_t> keys;
    for (uint64_t i = 0; i < 50; ++i) keys.push_back(key + i);
    REQUIRE_OK(rows.Update(0, keys, WireValues(absl::MakeConstSpan(zeros).subspan(0, 50 * 16))));
  }
  CHECK(rows.rows() == kRows);
  const double needed = 8 + 2 * 16 * 4;
  CHECK(static_cast<double>(rows.bytes()) / kRows < 1.15 * needed);
}

// Holds 20,000 rows of 16 floats and their state, which each round names in a different order.
class LimitedRows {
 public:
  static constexpr uint64_t kRows = 20'000;

  explicit LimitedRows(int64_t memory_bytes) {
    SparseRows::Config config = ConfigOf(Kind::kAdagrad, 16);
    config.memory_bytes = memory_bytes;
    config.disks = &disks;
    REQUIRE_OK_AND_ASSIGN(SparseRows made, SparseRows::Make(config));
    rows.emplace(std::move(made));
  }
  absl::Status Update(int64_t step, uint64_t first, uint64_t count) {
    std::vector<uint64_t> keys;
    for (uint64_t i = 0; i < count; ++i) keys.push_back((first + i) % kRows);
    return rows->Update(step, keys, WireValues(Gradients(1, static_cast<int64_t>(count) * 16)));
  }

  MemoryRowDisks disks;
  std::optional<SparseRows> rows;
};

TEST_CASE("SparseRows: memory stays within its limit, as heads and index grow",
          "[server][sparse]") {
  constexpr int64_t kLimit = 1 << 20;  // All would be 3 MB; heads and index are nearly half of it.
  LimitedRows limited(kLimit);
  for (int64_t step = 0; step < 40; ++step) {
    REQUIRE_OK(limited.Update(step, static_cast<uint64_t>(step) * 1000, 3000));
    CHECK(limited.rows->bytes() < kLimit * 9 / 8);
  }
  CHECK(limited.rows->rows() == LimitedRows::kRows);
  CHECK(limited.rows->rows_on_disk() > 12'000);
  CHECK(limited.disks.read > 20'000);
}

TEST_CASE("SparseRows: what is used often stays in memory", "[server][sparse]") {
  LimitedRows limited(2 << 20);
  for (int64_t step = 0; step < 20; ++step) {
    REQUIRE_OK(limited.Update(2 * step, 0, 1000));
    REQUIRE_OK(limited.Update(2 * step + 1, 1000 + static_cast<uint64_t>(step) * 900, 900));
  }
  const int64_t read = limited.disks.read;
  REQUIRE_OK(limited.Update(40, 0, 1000));
  CHECK(limited.disks.read == read);
}

TEST_CASE("SparseRows: what is used once does not drive out what is used always",
          "[server][sparse]") {
  // It holds half of the payloads. The rows that are used once are all but the first 1,000.
  LimitedRows limited(2 << 20);
  for (int64_t step = 0; step < 40; ++step) {
    REQUIRE_OK(limited.Update(2 * step, 0, 1000));
    const uint64_t once = 1000 + static_cast<uint64_t>(step) * 1900;
    REQUIRE_OK(limited.Update(2 * step + 1, once % 17'000 + 1000, 1900));
  }
  const int64_t read = limited.disks.read;
  REQUIRE_OK(limited.Update(80, 0, 1000));
  CHECK(limited.disks.read == read);
}

TEST_CASE("SparseRows: a payload that was pulled is there when it is pushed", "[server][sparse]") {
  LimitedRows limited(2 << 20);
  REQUIRE_OK(limited.Update(0, 0, LimitedRows::kRows));
  std::vector<uint64_t> batch[2];
  for (int64_t step = 1; step < 30; ++step) {
    // The pull of a batch goes ahead of the push of the one before.
    std::vector<uint64_t>& pulled = batch[step % 2];
    pulled.clear();
    for (uint64_t i = 0; i < 900; ++i) {
      pulled.push_back((static_cast<uint64_t>(step) * 900 + i) % LimitedRows::kRows);
    }
    ReadRows(*limited.rows, pulled);
    const int64_t read = limited.disks.read;
    if (step > 1) {
      const uint64_t first = batch[(step - 1) % 2][0];
      REQUIRE_OK(limited.Update(step, first, 900));
    }
    CHECK(limited.disks.read == read);
  }
}

TEST_CASE("SparseRows: what was fetched ahead is not read again", "[server][sparse]") {
  LimitedRows limited(1 << 20);
  REQUIRE_OK(limited.Update(0, 0, LimitedRows::kRows));
  const std::vector<uint64_t> keys = {1, 2, 3, 4, 5};  // They have left long ago.
  const auto fetch = limited.rows->BeginFetch(keys);
  REQUIRE(fetch != nullptr);
  fetch->Start();
  fetch->Finish();
  REQUIRE_OK(limited.rows->TakeIn(*fetch));
  const int64_t read = limited.disks.read;
  const std::vector<float> fetched = ReadRows(*limited.rows, keys);
  CHECK(limited.disks.read == read);
  CHECK(limited.rows->BeginFetch(keys) == nullptr);
  REQUIRE_OK(limited.Update(1, 6, 15'000));  // They leave once more.
  REQUIRE(limited.rows->BeginFetch(keys) != nullptr);
  CHECK(ReadRows(*limited.rows, keys) == fetched);
}

TEST_CASE("SparseRows: of what was fetched only that counts which nothing has changed since",
          "[server][sparse]") {
  LimitedRows limited(1 << 20);
  REQUIRE_OK(limited.Update(0, 0, LimitedRows::kRows));
  const auto fetch = limited.rows->BeginFetch({1, 2, 3, 4, 5});
  REQUIRE(fetch != nullptr);
  fetch->Start();
  SECTION("changed, and in memory") { REQUIRE_OK(limited.Update(1, 2, 2)); }
  SECTION("changed, and on disk again") {
    REQUIRE_OK(limited.Update(1, 2, 2));
    REQUIRE_OK(limited.Update(2, 6, 15'000));
    REQUIRE(limited.rows->BeginFetch({2, 3}) != nullptr);
  }
  SECTION("read") { ReadRows(*limited.rows, {2, 3}); }
  SECTION("not to be read") {
    limited.disks.read_error = absl::DataLossError("damaged");
    fetch->Finish();
    REQUIRE_OK(limited.rows->TakeIn(*fetch));
    std::vector<float> out(16);
    CHECK(limited.rows->Read({1}, out.data()).code() == absl::StatusCode::kUnavailable);
    return;
  }
  fetch->Finish();
  const SparseRows& rows = *limited.rows;
  LimitedRows expected(64 << 20);  // All in memory.
  REQUIRE_OK(expected.Update(0, 0, LimitedRows::kRows));
  const int64_t version = rows.lifetime().version;
  if (version > 1) REQUIRE_OK(expected.Update(1, 2, 2));
  if (version > 2) REQUIRE_OK(expected.Update(2, 6, 15'000));
  REQUIRE_OK(rows.TakeIn(*fetch));
  CHECK(ReadRows(rows, {1, 2, 3, 4, 5}) == ReadRows(*expected.rows, {1, 2, 3, 4, 5}));
}

TEST_CASE("SparseRows: a payload that did not change is not written again", "[server][sparse]") {
  LimitedRows limited(1);
  REQUIRE_OK(limited.Update(0, 0, 1000));
  ReadRows(*limited.rows, {1, 2, 3});
  const int64_t written = limited.disks.written;
  for (uint64_t key = 0; key < 500; ++key) ReadRows(*limited.rows, {key});
  CHECK(limited.disks.written - written <= 16);
  CHECK(limited.disks.read > 400);
}

TEST_CASE("SparseRows: a failing disk ends the call and loses nothing", "[server][sparse]") {
  LimitedRows limited(1);
  REQUIRE_OK(limited.Update(0, 0, 1000));
  const std::vector<float> row = ReadRows(*limited.rows, {5});
  limited.disks.write_error = absl::ResourceExhaustedError("no space left");
  std::vector<uint64_t> keys;
  for (uint64_t key = 0; key < 1000; ++key) keys.push_back(key);
  CHECK_STATUS(limited.Update(1, 2000, 1000), absl::StatusCode::kUnavailable,
               "this copy of the rows is lost: no space left");
  limited.disks.write_error = absl::OkStatus();
  limited.disks.read_error = absl::DataLossError("damaged");
  std::vector<float> out(keys.size() * 16);
  CHECK(limited.rows->Read(keys, out.data()).code() == absl::StatusCode::kUnavailable);
  SparseRows::RowBatch batch;
  CHECK(limited.rows->AppendRows(0, &batch).status().code() == absl::StatusCode::kUnavailable);
  limited.disks.read_error = absl::OkStatus();
  CHECK(ReadRows(*limited.rows, {5}) == row);
}

}  // namespace
}  // namespace capstan::server::sparse_rows_test
