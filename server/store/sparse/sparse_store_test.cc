#include "server/store/sparse/sparse_store.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "common/sparse/key_batch.h"
#include "common/sparse/key_hash.h"
#include "common/testing/status_matchers.h"
#include "server/store/sparse/testing/memory_row_disks.h"

namespace capstan::server::sparse_store_test {
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

// The payload of a push: rows of `value` for the keys, in the order that messages have.
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
  const std::string bytes(store.Lend(from, row_keys, NumberFormat::kFp32).value());
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

// All rows by scans of `bytes_max`, by key: their first values. `between` is called after each.
std::map<uint64_t, float> ScanAll(const SparseStore& store, int64_t bytes_max,
                                  const std::function<void(uint64_t)>& between) {
  std::map<uint64_t, float> rows;
  uint64_t place = 0, last = 0, scans = 0;
  for (;;) {
    REQUIRE_OK_AND_ASSIGN(const ScannedRows scanned,
                          store.row_store()->Scan({.place = place, .bytes_max = bytes_max}));
    const size_t count = scanned.rows.size() / (8 + kDim * 4);
    REQUIRE(scanned.rows.size() % (8 + kDim * 4) == 0);
    REQUIRE(count <= std::max<size_t>(1, static_cast<size_t>(bytes_max) / (8 + kDim * 4)));
    for (size_t i = 0; i < count; ++i) {
      uint64_t key;
      float value;
      std::memcpy(&key, scanned.rows.data() + 8 * i, 8);
      std::memcpy(&value, scanned.rows.data() + 8 * count + i * kDim * 4, 4);
      const uint64_t at = PlaceOf(KeyHash(key), 1).place;
      REQUIRE(at >= place);
      REQUIRE((at > last || rows.empty()));
      REQUIRE((!scanned.next.has_value() || at < *scanned.next));
      REQUIRE(rows.emplace(key, value).second);
      last = at;
    }
    between(scans++);
    if (!scanned.next.has_value()) return rows;
    REQUIRE(*scanned.next > place);
    place = *scanned.next;
  }
}

TEST_CASE("Sparse store: scans bring every row once, as it is, and none that reading asked for",
          "[server][sparse]") {
  const auto store = MakeStore();
  CHECK(ScanAll(*store, 1 << 20, [](uint64_t) {}).empty());
  std::vector<uint64_t> keys;
  for (uint64_t i = 0; i < 3'000; ++i) keys.push_back(i * i);
  REQUIRE_OK(store->Apply({.gradient = kIncomingGradient}, Pushed(*store, keys, 2.0f).gradient));
  Read(*store, {1'000'000'007});
  const int64_t bytes_max = GENERATE(1, 16, 17, 1000, 4 << 20);
  const auto rows = ScanAll(*store, bytes_max, [](uint64_t) {});
  CHECK(rows.size() == keys.size());
  for (const uint64_t key : keys) {
    if (rows.at(key) != -2.0f) FAIL("key " << key);
  }
}

TEST_CASE("Sparse store: rows that are there all the time come once, while others are made",
          "[server][sparse]") {
  const auto store = MakeStore(Kind::kAdam);
  std::vector<uint64_t> keys;
  for (uint64_t i = 0; i < 20'000; ++i) keys.push_back(i);
  REQUIRE_OK(store->Apply({.gradient = kIncomingGradient}, Pushed(*store, keys, 2.0f).gradient));
  const std::vector<float> before = Read(*store, keys);
  const int64_t rows_before = store->elements() / kDim;
  const auto rows = ScanAll(*store, 16'000, [&](uint64_t scan) {
    std::vector<uint64_t> more;
    for (uint64_t i = 0; i < 5'000 && scan < 30; ++i) more.push_back(20'000 + scan * 5'000 + i);
    if (more.empty()) return;
    REQUIRE_OK(store->Apply({.gradient = kIncomingGradient, .step = static_cast<int64_t>(scan)},
                            Pushed(*store, more, 1.0f).gradient));
  });
  CHECK(store->elements() / kDim >= 6 * rows_before);  // The index has split many times.
  for (size_t i = 0; i < keys.size(); ++i) {
    const auto row = rows.find(keys[i]);
    if (row == rows.end() || row->second != before[i]) FAIL("key " << keys[i]);
  }
}

TEST_CASE("Sparse store: a scan of a row larger than was asked for brings that row",
          "[server][sparse]") {
  const auto store = MakeStore();
  REQUIRE_OK(store->Apply({.gradient = kIncomingGradient}, Pushed(*store, {7}, 2.0f).gradient));
  REQUIRE_OK_AND_ASSIGN(const ScannedRows first, store->row_store()->Scan({.bytes_max = 1}));
  CHECK(first.rows.size() == 8 + kDim * 4);
  CHECK_FALSE(first.next.has_value());
  REQUIRE_OK_AND_ASSIGN(const ScannedRows behind,
                        store->row_store()->Scan({.place = KeyHash(7) + 1, .bytes_max = 1}));
  CHECK(behind.rows.empty());
  CHECK_FALSE(behind.next.has_value());
}

TEST_CASE("Sparse store: what is saved makes the same store, byte for byte", "[server][sparse]") {
  const Kind kind = GENERATE(Kind::kSgd, Kind::kAdagrad, Kind::kAdam, Kind::kFtrl, Kind::kAmsGrad);
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
  REQUIRE_OK(store->Save(previous, &saved));
  const auto other = MakeStore(kind);
  REQUIRE_OK(other->Restore(saved));
  v1::ShardSnapshot again;
  again.mutable_state()->set_previous_readable(previous);
  REQUIRE_OK(other->Save(previous, &again));
  CHECK(again.SerializeAsString() == saved.SerializeAsString());
  // Both go on alike: state and counts are there, too.
  const Pushed push(*store, {1, 2, 3, 1'000'000}, 0.25f);
  REQUIRE_OK(store->Apply({.gradient = kIncomingGradient, .step = 5}, push.gradient));
  REQUIRE_OK(other->Apply({.gradient = kIncomingGradient, .step = 5}, push.gradient));
  CHECK(Read(*store, {1, 2, 3, 1'000'000}) == Read(*other, {1, 2, 3, 1'000'000}));
}

TEST_CASE("Sparse store: what was captured is restored piece by piece, as it was then",
          "[server][sparse]") {
  const Kind kind = GENERATE(Kind::kSgd, Kind::kAdam);
  const auto store = MakeStore(kind);
  std::vector<uint64_t> keys;
  for (uint64_t key = 0; key < 20'000; ++key) keys.push_back(key);
  const Pushed push(*store, keys, 0.5f);
  REQUIRE_OK(store->Apply({.gradient = kIncomingGradient}, push.gradient));
  v1::ShardSnapshot whole, head;
  REQUIRE_OK(store->Save(false, &whole));
  constexpr PinId kPin{7};
  REQUIRE_OK(store->row_store()->Capture(kPin, std::nullopt, false, &head));
  CHECK(head.rows_to_come() == 20'000);
  const auto other = MakeStore(kind);
  REQUIRE_OK(other->Restore(head));
  std::vector<v1::ShardSnapshot> pieces;
  std::optional<uint64_t> place = 0;
  while (place.has_value()) {
    v1::ShardSnapshot& piece = pieces.emplace_back();
    REQUIRE_OK_AND_ASSIGN(
        place, store->row_store()->ReadPinned({.pin = kPin, .place = *place, .bytes_max = 64 << 10},
                                              &piece));
    REQUIRE_OK(other->row_store()->RestoreMore(piece));
    REQUIRE_OK(store->Apply({.gradient = kIncomingGradient, .step = std::ssize(pieces)},
                            push.gradient));  // Is not in it.
  }
  CHECK(pieces.size() > 4);
  v1::ShardSnapshot again;
  REQUIRE_OK(other->Save(false, &again));
  CHECK(again.SerializeAsString() == whole.SerializeAsString());
  // The same in one message, as a log has it.
  for (const v1::ShardSnapshot& piece : pieces) *head.add_pieces() = piece;
  const auto third = MakeStore(kind);
  REQUIRE_OK(third->Restore(head));
  again.Clear();
  REQUIRE_OK(third->Save(false, &again));
  CHECK(again.SerializeAsString() == whole.SerializeAsString());
  CHECK_STATUS(third->row_store()->RestoreMore(pieces[1]), absl::StatusCode::kDataLoss,
               "begins a piece");
}

TEST_CASE("Sparse store: what rows to come will take is said before", "[server][sparse]") {
  const auto store = MakeStore(Kind::kAdam);
  v1::ShardSnapshot head;
  REQUIRE_OK(store->Save(false, &head));
  for (const int64_t rows : {0, 1, 1000, 1'000'000}) {
    head.set_rows_to_come(rows);
    const int64_t said = store->row_store()->RoomBytesMax(head);
    const auto other = MakeStore(Kind::kAdam);
    REQUIRE_OK(other->Restore(head));
    CAPTURE(rows);
    CHECK(other->lasting_bytes() <= store->lasting_bytes() + said);
    CHECK(said <= 64 + 20 * rows);
  }
  head.set_rows_to_come(INT64_MAX);
  CHECK(store->row_store()->RoomBytesMax(head) == 0);
  CHECK_STATUS(store->Restore(head), absl::StatusCode::kDataLoss, "would have 9223372036854775807");
}

TEST_CASE("Sparse store: the version before has rows that an update has evicted, or refused",
          "[server][sparse]") {
  SparseRows::Config config = ConfigOf(Kind::kSgd);
  config.admission = {.after = 2, .filter_keys = 1000};
  config.eviction = {.after = 2};
  REQUIRE_OK_AND_ASSIGN(const auto store, SparseStore::Make(config, 0));
  int64_t step = 0;
  const auto update = [&](const std::vector<uint64_t>& keys) {
    const Pushed push(*store, keys, 1.0f);
    store->Release({});
    REQUIRE_OK(store->Apply({.gradient = kIncomingGradient, .step = step++, .keep_previous = true},
                            push.gradient));
  };
  update({1, 2, 3});
  CHECK(store->elements() == 0);
  update({1, 2, 3});
  update({2, 4});
  update({2, 4, 5});  // 1 and 3 leave, 4 comes, 5 is refused.
  const std::vector<uint64_t> all = {1, 2, 3, 4, 5};
  CHECK(Read(*store, all) == std::vector<float>{0.0f, -3.0f, 0.0f, -1.0f, 0.0f});
  CHECK(Read(*store, all, ReadFrom::kPrevious) ==
        std::vector<float>{-1.0f, -2.0f, -1.0f, 0.0f, 0.0f});
  v1::ShardSnapshot saved;
  saved.mutable_state()->set_version(step);
  saved.mutable_state()->set_previous_readable(true);
  REQUIRE_OK(store->Save(true, &saved));
  CHECK(saved.previous().size() == 4 * (sizeof(uint64_t) + kDim * sizeof(float)));
  REQUIRE_OK_AND_ASSIGN(const auto other, SparseStore::Make(config, 0));
  REQUIRE_OK(other->Restore(saved));
  CHECK(Read(*other, all, ReadFrom::kPrevious) == Read(*store, all, ReadFrom::kPrevious));
  CHECK(other->row_store()->row_counts().refused() == 5);
}

TEST_CASE("Sparse store: rows leave that were updated last before the version of an update",
          "[server][sparse]") {
  SparseRows::Config config = ConfigOf(Kind::kSgd);
  config.eviction = {.by_time = true};
  REQUIRE_OK_AND_ASSIGN(const auto store, SparseStore::Make(config, 0));
  int64_t step = 0;
  const auto update = [&](const std::vector<uint64_t>& keys, int64_t evict_before) {
    const Pushed push(*store, keys, 1.0f);
    REQUIRE_OK(store->Apply(
        {.gradient = kIncomingGradient, .step = step++, .evict_before = Version(evict_before)},
        push.gradient));
  };
  update({1, 2}, 0);
  update({2}, 0);
  store->row_store()->KeepRemovedSince(step);
  update({3}, 2);
  CHECK(Read(*store, {1, 2, 3}) == std::vector<float>{0.0f, -2.0f, -1.0f});
  CHECK(store->row_store()->row_counts().evicted_by_age() == 1);
  // A capture of what has changed names the key.
  v1::ShardSnapshot changed;
  REQUIRE_OK(store->row_store()->Capture(PinId{1}, 2, /*previous=*/false, &changed));
  REQUIRE(changed.has_since());
  CHECK(changed.since().removed() == Bytes({1}));
}

TEST_CASE("Sparse store: a bucket whose snapshot would be too large is refused",
          "[server][sparse]") {
  constexpr int64_t kWide = 4096;
  SparseRows::Config config = ConfigOf(Kind::kSgd);
  config.dim = kWide;
  config.initializer = RowInitializer(v1::Initializer(), 1, TableId(0), kWide);
  REQUIRE_OK_AND_ASSIGN(const auto store, SparseStore::Make(config, 0, 60 << 20));
  absl::Status status;
  uint64_t rows = 0;
  while (status.ok() && rows < 3000) {
    std::vector<uint64_t> keys;
    for (int i = 0; i < 100; ++i) keys.push_back(rows++);
    const KeyBatch batch = MakeKeyBatch(keys, 1);
    const absl::Cord payload(Bytes(batch.keys) + std::string(100 * kWide * sizeof(float), '\0'));
    REQUIRE_OK_AND_ASSIGN(const Gradient gradient, store->Parse(payload, NumberFormat::kFp32));
    status = store->row_store()->CheckRoom(gradient);
    if (status.ok()) status = store->Apply({.gradient = kIncomingGradient}, gradient);
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
  REQUIRE_OK(store->Save(false, &saved));
  constexpr auto kLoss = absl::StatusCode::kDataLoss;
  v1::ShardSnapshot bad = saved;
  bad.set_elements(2);
  CHECK_STATUS(MakeStore(Kind::kAdam)->Restore(bad), kLoss, "a snapshot of 2 buckets: expected 1");
  bad = saved;
  bad.mutable_values()->resize(saved.values().size() - 1);
  CHECK_STATUS(MakeStore(Kind::kAdam)->Restore(bad), kLoss, "expected a multiple of 16");
  bad = saved;
  bad.mutable_optimizer_state(1)->clear();
  CHECK_STATUS(MakeStore(Kind::kAdam)->Restore(bad), kLoss, "optimizer state of another size");
  CHECK_STATUS(MakeStore(Kind::kSgd)->Restore(saved), kLoss, "optimizer state of another size");
  bad = saved;
  bad.mutable_bucket()->mutable_stamps()->resize(8);
  CHECK_STATUS(MakeStore(Kind::kAdam)->Restore(bad), kLoss,
               "8 bytes of stamps of 3 rows: expected 4 a row");
  bad = saved;
  bad.mutable_bucket()->set_admission("123");
  CHECK_STATUS(MakeStore(Kind::kAdam)->Restore(bad), kLoss,
               "an admission filter of 3 bytes: expected none");
}

TEST_CASE("SparseStore: with a limit of memory, the same answers and snapshots",
          "[server][sparse]") {
  const Kind kind = GENERATE(Kind::kSgd, Kind::kAdam);
  MemoryRowDisks disks;
  SparseRows::Config config = ConfigOf(kind);
  config.eviction = {.after = 30, .rows_max = 900};
  config.disks = &disks;
  std::vector<std::unique_ptr<SparseStore>> stores;
  for (const int64_t memory : {0, 1, 16 << 10}) {
    config.memory_bytes = memory;
    REQUIRE_OK_AND_ASSIGN(auto store, SparseStore::Make(config, 0));
    stores.push_back(std::move(store));
  }
  std::vector<std::string> seen(stores.size());
  for (int64_t step = 0; step < 60; ++step) {
    std::vector<uint64_t> keys;
    for (uint64_t i = 0; i < 100; ++i) keys.push_back(static_cast<uint64_t>(step) * 17 + i * 5);
    for (size_t s = 0; s < stores.size(); ++s) {
      const Pushed pushed(*stores[s], keys, static_cast<float>(step));
      REQUIRE_OK(stores[s]->Apply(
          {.gradient = kIncomingGradient, .step = step, .keep_previous = true}, pushed.gradient));
      for (const ReadFrom from : {ReadFrom::kCurrent, ReadFrom::kPrevious}) {
        for (const float value : Read(*stores[s], keys, from))
          absl::StrAppend(&seen[s], value, " ");
      }
      REQUIRE_OK_AND_ASSIGN(const ScannedRows scanned,
                            stores[s]->row_store()->Scan({.bytes_max = 10'000}));
      seen[s] += scanned.rows;
    }
  }
  v1::ShardSnapshot expected;
  REQUIRE_OK(stores[0]->Save(true, &expected));
  expected.mutable_state()->set_previous_readable(true);
  CHECK(stores[1]->row_store()->rows_on_disk() > 500);
  for (size_t s = 1; s < stores.size(); ++s) {
    CHECK(seen[s] == seen[0]);
    REQUIRE_OK(stores[s]->Restore(expected));
    v1::ShardSnapshot again;
    REQUIRE_OK(stores[s]->Save(true, &again));
    again.mutable_state()->set_previous_readable(true);
    CHECK(again.SerializeAsString() == expected.SerializeAsString());
  }
}

TEST_CASE("SparseStore: rows of keys that are known already are the same gradient", "[server]") {
  const auto store = MakeStore();
  const std::vector<uint64_t> keys = {7, 8, 9};
  const Pushed whole(*store, keys, 1.5f);
  const absl::Cord rows = whole.bytes.Subcord(keys.size() * sizeof(uint64_t), whole.bytes.size());
  REQUIRE_OK_AND_ASSIGN(const Gradient listed,
                        store->Parse(rows, NumberFormat::kFp32, whole.gradient.shared_keys()));
  std::string expected, bytes;  // The payloads of records: replicas and logs need no list.
  whole.gradient.AppendTo(&expected);
  listed.AppendTo(&bytes);
  CHECK(bytes == expected);
  CHECK_STATUS(store->Parse(whole.bytes, NumberFormat::kFp32, whole.gradient.shared_keys()),
               kInvalid, "48 bytes of rows: expected 24 of the 3 keys of the list");
}

}  // namespace
}  // namespace capstan::server::sparse_store_test
