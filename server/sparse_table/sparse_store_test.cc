#include "server/sparse_table/sparse_store.h"

#include <catch2/catch.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "common/sparse/key_batch.h"
#include "common/sparse/key_hash.h"
#include "common/testing/status_matchers.h"

namespace capstan::server {
namespace {

using Kind = OptimizerKind;
constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;
constexpr int64_t kDim = 2;

SparseRows::Config ConfigOf(Kind kind, int32_t buckets = 1) {
  return {.dim = kDim,
          .buckets = buckets,
          .rule = {.kind = kind, .learning_rate = 1.0f},
          .initializer = RowInitializer(v1::Initializer(), 1, TableId(0), kDim)};
}

std::unique_ptr<SparseStore> MakeStore(Kind kind = Kind::kSgd, int32_t buckets = 1) {
  REQUIRE_OK_AND_ASSIGN(auto store, SparseStore::Make(ConfigOf(kind, buckets), 0));
  return store;
}

std::string Bytes(const std::vector<uint64_t>& keys) {
  return {reinterpret_cast<const char*>(keys.data()), keys.size() * sizeof(uint64_t)};
}

// What a push carries: rows of `value` for the keys, in the order that messages have.
std::string Payload(const std::vector<uint64_t>& keys, float value) {
  const KeyBatch batch = MakeKeyBatch(keys, 1);
  const std::vector<float> rows(batch.keys.size() * kDim, value);
  return Bytes(batch.keys) +
         std::string(reinterpret_cast<const char*>(rows.data()), rows.size() * sizeof(float));
}

// A gradient with what it borrows.
struct Pushed {
  Pushed(const SparseStore& store, const std::vector<uint64_t>& keys, float value)
      : bytes(Payload(keys, value)) {
    auto parsed = store.Parse(bytes, NumberFormat::kFp32);
    REQUIRE_OK(parsed);
    gradient = *parsed;
  }
  absl::Cord bytes;
  Gradient gradient;
};

// The first value of each row, in the order of `keys`.
std::vector<float> Read(const SparseStore& store, const std::vector<uint64_t>& keys,
                        ReadFrom from = ReadFrom::kCurrent) {
  std::vector<uint32_t> places;
  const KeyBatch batch = MakeKeyBatch(keys, 1, &places);
  REQUIRE_OK_AND_ASSIGN(const RowKeys row_keys, store.ParseKeys(Bytes(batch.keys)));
  const std::string bytes(store.Lend(from, row_keys, NumberFormat::kFp32));
  REQUIRE(bytes.size() == batch.keys.size() * kDim * sizeof(float));
  std::vector<float> first;
  for (const uint32_t place : places) {
    float value;
    std::memcpy(&value, bytes.data() + place * kDim * sizeof(float), sizeof(value));
    first.push_back(value);
  }
  return first;
}

TEST_CASE("Sparse store: an update changes the rows that it names", "[server][sparse]") {
  const auto store = MakeStore();
  const Pushed push(*store, {5, 9}, 2.0f);
  REQUIRE_OK(store->Apply({.gradient = kIncomingGradient}, push.gradient));
  CHECK(Read(*store, {9, 7, 5}) == std::vector<float>{-2.0f, 0.0f, -2.0f});
  CHECK(store->elements() == 2 * kDim);
}

TEST_CASE("Sparse store: slots are added up key by key", "[server][sparse]") {
  const auto store = MakeStore();
  const GradientId a{1}, b{2};
  REQUIRE_OK(store->Keep({a}, Pushed(*store, {1, 2, 3}, 1.0f).gradient));
  REQUIRE_OK(store->Keep({b}, Pushed(*store, {3, 4}, 10.0f).gradient));
  REQUIRE_OK(store->Add({.into = a, .from = b}, {}));
  const Pushed more(*store, {1, 5}, 100.0f);
  REQUIRE_OK(store->Add({.into = a, .from = kIncomingGradient}, more.gradient));
  REQUIRE_OK(store->Apply({.gradient = a}, {}));
  CHECK(Read(*store, {1, 2, 3, 4, 5, 6}) ==
        std::vector<float>{-101.0f, -1.0f, -11.0f, -10.0f, -100.0f, 0.0f});
}

TEST_CASE("Sparse store: the version before an update stays readable until it is released",
          "[server][sparse]") {
  const auto store = MakeStore();
  const Pushed first(*store, {1, 2}, 1.0f);
  REQUIRE_OK(store->Apply({.gradient = kIncomingGradient}, first.gradient));
  const GradientId a{1};
  REQUIRE_OK(store->Keep({a}, Pushed(*store, {2, 3}, 5.0f).gradient));
  REQUIRE_OK(store->Apply({.gradient = a, .step = 1, .keep_previous = true}, {}));
  CHECK(Read(*store, {1, 2, 3, 4}) == std::vector<float>{-1.0f, -6.0f, -5.0f, 0.0f});
  CHECK(Read(*store, {1, 2, 3, 4}, ReadFrom::kPrevious) ==
        std::vector<float>{-1.0f, -1.0f, 0.0f, 0.0f});
  store->Release({});
  CHECK(Read(*store, {2}) == std::vector<float>{-6.0f});
}

TEST_CASE("Sparse store: what is saved makes the same store, byte for byte", "[server][sparse]") {
  const Kind kind = GENERATE(Kind::kSgd, Kind::kAdagrad, Kind::kAdam, Kind::kFtrl);
  const bool previous = GENERATE(false, true);
  CAPTURE(static_cast<int>(kind), previous);
  const auto store = MakeStore(kind);
  for (uint64_t step = 0; step < 5; ++step) {
    std::vector<uint64_t> keys;
    for (uint64_t i = 0; i < 50'000; ++i) keys.push_back(i * (step + 1));
    const Pushed push(*store, keys, 0.5f);
    if (step > 0) store->Release({});
    REQUIRE_OK(store->Apply(
        {.gradient = kIncomingGradient, .step = static_cast<int64_t>(step), .keep_previous = true},
        push.gradient));
  }
  v1::ShardSnapshot saved;
  saved.mutable_state()->set_previous_readable(previous);
  store->Save(previous, &saved);
  const auto other = MakeStore(kind);
  REQUIRE_OK(other->Restore(saved));
  v1::ShardSnapshot again;
  again.mutable_state()->set_previous_readable(previous);
  other->Save(previous, &again);
  CHECK(again.SerializeAsString() == saved.SerializeAsString());
  // Both go on alike: state and counts are there, too.
  const Pushed push(*store, {1, 2, 3, 1'000'000}, 0.25f);
  REQUIRE_OK(store->Apply({.gradient = kIncomingGradient, .step = 5}, push.gradient));
  REQUIRE_OK(other->Apply({.gradient = kIncomingGradient, .step = 5}, push.gradient));
  CHECK(Read(*store, {1, 2, 3, 1'000'000}) == Read(*other, {1, 2, 3, 1'000'000}));
}

TEST_CASE("Sparse store: a bucket that no message could carry is refused", "[server][sparse]") {
  constexpr int64_t kWide = 4096;
  SparseRows::Config config = ConfigOf(Kind::kSgd);
  config.dim = kWide;
  config.initializer = RowInitializer(v1::Initializer(), 1, TableId(0), kWide);
  REQUIRE_OK_AND_ASSIGN(const auto store, SparseStore::Make(config, 0));
  absl::Status status;
  uint64_t rows = 0;
  while (status.ok() && rows < 3000) {
    std::vector<uint64_t> keys;
    for (int i = 0; i < 100; ++i) keys.push_back(rows++);
    const KeyBatch batch = MakeKeyBatch(keys, 1);
    const absl::Cord payload(Bytes(batch.keys) + std::string(100 * kWide * sizeof(float), '\0'));
    const absl::StatusOr<Gradient> gradient = store->Parse(payload, NumberFormat::kFp32);
    status = gradient.ok() ? store->Apply({.gradient = kIncomingGradient}, *gradient)
                           : gradient.status();
  }
  CHECK_STATUS(status, absl::StatusCode::kResourceExhausted, "the table needs more buckets");
  CHECK(rows == 2000);                       // 60 MiB / (2 * 16,392 + 4 bytes) is 1,918.
  CHECK(store->elements() == 1900 * kWide);  // Nothing has changed.
}

TEST_CASE("Sparse store: payloads that cannot be are refused by name", "[server][sparse]") {
  const auto store = MakeStore();
  const auto parse = [&](const std::string& bytes) {
    return store->Parse(absl::Cord(bytes), NumberFormat::kFp32);
  };
  CHECK_STATUS(parse("123"), kInvalid, "3 bytes of keys and rows: expected a multiple of 16");
  const std::vector<uint64_t> sorted = MakeKeyBatch(std::vector<uint64_t>{1, 2}, 1).keys;
  const std::string rows(2 * kDim * sizeof(float), '\0');
  REQUIRE_OK(parse(Bytes(sorted) + rows));
  CHECK_STATUS(parse(Bytes({sorted[1], sorted[0]}) + rows), kInvalid,
               "expected each key once, in ascending order of their hashes");
  CHECK_STATUS(parse(Bytes({sorted[0], sorted[0]}) + rows), kInvalid, "expected each key once");
  CHECK_STATUS(store->ParseKeys("1234567"), kInvalid, "7 bytes of keys: expected a multiple of 8");
  REQUIRE_OK(store->Parse(absl::Cord(), NumberFormat::kFp32));

  const auto first_of_two = MakeStore(Kind::kSgd, 2);
  uint64_t other = 0;
  while (PlaceOf(KeyHash(other), 2).bucket == 0) ++other;
  CHECK_STATUS(first_of_two->ParseKeys(Bytes({other})), kInvalid,
               "is of bucket 1 of 2: expected 0");
}

TEST_CASE("Sparse store: snapshots that cannot be are refused", "[server][sparse]") {
  const auto store = MakeStore(Kind::kAdam);
  const Pushed push(*store, {1, 2, 3}, 1.0f);
  REQUIRE_OK(store->Apply({.gradient = kIncomingGradient}, push.gradient));
  v1::ShardSnapshot saved;
  store->Save(false, &saved);
  constexpr auto kLoss = absl::StatusCode::kDataLoss;
  v1::ShardSnapshot bad = saved;
  bad.set_elements(2);
  CHECK_STATUS(MakeStore(Kind::kAdam)->Restore(bad), kLoss, "a snapshot of 2 buckets with 3 rows");
  bad = saved;
  bad.mutable_values()->resize(saved.values().size() - 1);
  CHECK_STATUS(MakeStore(Kind::kAdam)->Restore(bad), kLoss, "expected a multiple of 16");
  bad = saved;
  bad.mutable_optimizer_state(1)->clear();
  CHECK_STATUS(MakeStore(Kind::kAdam)->Restore(bad), kLoss, "optimizer state of another size");
  CHECK_STATUS(MakeStore(Kind::kSgd)->Restore(saved), kLoss, "optimizer state of another size");
}

}  // namespace
}  // namespace capstan::server
