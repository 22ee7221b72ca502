#include "server/store/dense/dense_store.h"

#include <bit>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "common/random/philox.h"
#include "common/testing/status_matchers.h"
#include "server/device/testing/test_shard_device.h"
#include "server/optimizer/testing/reference.h"

namespace capstan::server::dense_store_test {
namespace {

std::vector<float> Numbers(uint64_t key, int64_t count) {
  std::vector<float> numbers;
  for (int64_t i = 0; i < count; ++i) numbers.push_back(ToUnitFloat(PhiloxWord(key, i)) - 0.5f);
  return numbers;
}

std::vector<uint32_t> BitsOf(absl::Span<const float> values) {
  std::vector<uint32_t> bits;
  for (const float value : values) bits.push_back(std::bit_cast<uint32_t>(value));
  return bits;
}

OptimizerConfig Rule(OptimizerKind kind) {
  OptimizerConfig config;
  config.kind = kind;
  config.learning_rate = 0.1f;
  config.weight_decay = 0.01f;
  return config;
}

std::unique_ptr<DenseStore> MakeStore(const OptimizerConfig& rule,
                                      const std::vector<float>& values) {
  const int64_t count = static_cast<int64_t>(values.size());
  REQUIRE_OK_AND_ASSIGN(
      std::unique_ptr<DenseStore> store,
      DenseStore::Make(count, {{.begin = 0, .end = count, .config = rule}}, TestShardDevice()));
  REQUIRE_OK(store->SetValues(
      [&values](absl::Span<float> to) { std::copy(values.begin(), values.end(), to.begin()); }));
  return store;
}

constexpr GradientId kA{1}, kB{2};

absl::Status Apply(DenseStore& store, const ApplyGradient& action, const Gradient& payload) {
  const absl::Status begun = store.Apply(action, payload);
  return begun.ok() ? store.Finish() : begun;
}

TEST_CASE("Dense store: a layer-wise rule takes the norms of each tensor, whatever blocks it has",
          "[server]") {
  const OptimizerKind kind = GENERATE(OptimizerKind::kLars, OptimizerKind::kLamb);
  // The second tensor begins at no multiple of a cache line; the last one has no trust ratio.
  const std::vector<int64_t> sizes = {5'001, 9'000, 70};
  std::vector<UpdateSegment> segments;
  int64_t count = 0;
  for (const int64_t size : sizes) {
    segments.push_back({.begin = count, .end = count + size, .config = Rule(kind)});
    count += size;
  }
  segments.back().config.has_trust_ratio = false;
  std::vector<float> expected = Numbers(1, count);
  REQUIRE_OK_AND_ASSIGN(std::unique_ptr<DenseStore> store, DenseStore::Make(count, segments));
  REQUIRE_OK(store->SetValues(
      [&](absl::Span<float> to) { std::copy(expected.begin(), expected.end(), to.begin()); }));
  std::vector<std::vector<float>> slots(2, std::vector<float>(static_cast<size_t>(count)));
  for (int64_t step = 0; step < 3; ++step) {
    const std::vector<float> gradient = Numbers(10 + static_cast<uint64_t>(step), count);
    if (step == 1) {  // Over the summed gradient, beside values that are lent.
      REQUIRE_OK(store->Keep({kA}, Gradient(gradient)));
      REQUIRE_OK(Apply(*store, {.gradient = kA, .step = step, .keep_previous = true}, {}));
      store->Release({});
    } else {
      REQUIRE_OK(Apply(*store, {.gradient = kIncomingGradient, .step = step}, Gradient(gradient)));
    }
    for (const UpdateSegment& segment : segments) {
      std::vector<float*> state;
      for (int slot = 0; slot < StateSlots(segment.config); ++slot) {
        state.push_back(slots[static_cast<size_t>(slot)].data() + segment.begin);
      }
      float* const w = expected.data() + segment.begin;
      ApplyReference(segment.config, step, segment.end - segment.begin, w,
                     gradient.data() + segment.begin, absl::MakeSpan(state), w);
    }
    CHECK(BitsOf(store->Read(ReadFrom::kCurrent)) == BitsOf(expected));
  }
}

TEST_CASE("Dense store: an update over the summed gradient has the bits of one in place",
          "[server]") {
  const OptimizerKind kind =
      GENERATE(OptimizerKind::kSgd, OptimizerKind::kMomentum, OptimizerKind::kNesterov,
               OptimizerKind::kAdagrad, OptimizerKind::kRmsProp, OptimizerKind::kAdam,
               OptimizerKind::kAdamW, OptimizerKind::kFtrl);
  const int64_t count = GENERATE(1, 7, 4096, 10'001);
  const std::vector<float> values = Numbers(1, count);
  const auto kept = MakeStore(Rule(kind), values);
  const auto in_place = MakeStore(Rule(kind), values);
  for (int64_t step = 0; step < 3; ++step) {
    const std::vector<float> gradient = Numbers(10 + static_cast<uint64_t>(step), count);
    const std::vector<uint32_t> before = BitsOf(kept->Read(ReadFrom::kCurrent));
    if (step > 0) kept->Release({});
    REQUIRE_OK(kept->Keep({kA}, Gradient(gradient)));
    REQUIRE_OK(Apply(*kept, {.gradient = kA, .step = step, .keep_previous = true}, {}));
    REQUIRE_OK(Apply(*in_place, {.gradient = kIncomingGradient, .step = step}, Gradient(gradient)));
    CHECK(BitsOf(kept->Read(ReadFrom::kCurrent)) == BitsOf(in_place->Read(ReadFrom::kCurrent)));
    CHECK(BitsOf(kept->Read(ReadFrom::kPrevious)) == before);
  }
}

TEST_CASE("Dense store: gradients are added element by element", "[server]") {
  const int64_t count = 1003;
  const std::vector<float> a = Numbers(2, count), b = Numbers(3, count), c = Numbers(4, count);
  const auto store = MakeStore(Rule(OptimizerKind::kSgd), std::vector<float>(count, 0.0f));
  REQUIRE_OK(store->Keep({kA}, Gradient(a)));
  REQUIRE_OK(store->Keep({kB}, Gradient(b)));
  REQUIRE_OK(store->Add({.into = kB, .from = kIncomingGradient}, Gradient(c)));
  REQUIRE_OK(store->Add({.into = kA, .from = kB}, {}));
  REQUIRE_OK(Apply(*store, {.gradient = kA, .step = 0, .keep_previous = true}, {}));
  std::vector<float> expected;
  for (int64_t i = 0; i < count; ++i) expected.push_back(0.0f - 0.1f * (a[i] + (b[i] + c[i])));
  CHECK(BitsOf(store->Read(ReadFrom::kCurrent)) == BitsOf(expected));
}

TEST_CASE("Dense store: steady training needs no memory beyond one more buffer", "[server]") {
  const int64_t count = 1000, buffer = count * 4;
  const std::vector<float> gradient = Numbers(5, count);
  const auto store = MakeStore(Rule(OptimizerKind::kMomentum), Numbers(1, count));
  const int64_t lasting = store->on_device() ? buffer : 2 * buffer;  // Memory of the host.
  CHECK(store->bytes() == lasting);
  const int slots = GENERATE(1, 2);
  for (int64_t step = 0; step < 5; ++step) {
    if (step > 0) store->Release({});
    if (slots == 1) {
      REQUIRE_OK(Apply(*store, {.step = step, .keep_previous = true}, Gradient(gradient)));
    } else {
      REQUIRE_OK(store->Keep({kA}, Gradient(gradient)));
      REQUIRE_OK(store->Add({.into = kA, .from = kIncomingGradient}, Gradient(gradient)));
      REQUIRE_OK(Apply(*store, {.gradient = kA, .step = step, .keep_previous = true}, {}));
    }
    CHECK(store->bytes() == lasting + buffer);
  }
}

TEST_CASE("Dense store: applying at once needs no buffer at all", "[server]") {
  const auto store = MakeStore(Rule(OptimizerKind::kAdam), Numbers(1, 100));
  const int64_t bytes = store->bytes();
  const std::vector<float> gradient = Numbers(5, 100);
  REQUIRE_OK(Apply(*store, {.step = 0}, Gradient(gradient)));
  CHECK(store->bytes() == bytes);
}

TEST_CASE("Dense store: values that are lent do not change under their reader", "[server]") {
  const std::vector<float> gradient = Numbers(5, 5000), values = Numbers(1, 5000);
  const auto store = MakeStore(Rule(OptimizerKind::kSgd), values);
  const auto unread = MakeStore(Rule(OptimizerKind::kSgd), values);
  const int64_t bytes = store->bytes();
  absl::Cord lent = store->Lend(ReadFrom::kCurrent, nullptr, NumberFormat::kFp32).value();
  CHECK(lent.TryFlat()->data() ==
        reinterpret_cast<const char*>(store->Read(ReadFrom::kCurrent).data()));
  for (int64_t step = 0; step < 2; ++step) {
    REQUIRE_OK(Apply(*store, {.step = step}, Gradient(gradient)));
    REQUIRE_OK(Apply(*unread, {.step = step}, Gradient(gradient)));
  }
  CHECK(BitsOf(store->Read(ReadFrom::kCurrent)) == BitsOf(unread->Read(ReadFrom::kCurrent)));
  CHECK(std::memcmp(lent.TryFlat()->data(), values.data(), lent.size()) == 0);
  CHECK(store->bytes() == bytes);  // The old values' buffer is their reader's.
}

TEST_CASE("Dense store: no buffer that is lent is written again", "[server]") {
  const std::vector<float> gradient = Numbers(5, 100), values = Numbers(1, 100);
  const auto store = MakeStore(Rule(OptimizerKind::kMomentum), values);
  const absl::Cord current = store->Lend(ReadFrom::kCurrent, nullptr, NumberFormat::kFp32).value();
  REQUIRE_OK(store->Keep({kA}, Gradient(gradient)));
  REQUIRE_OK(Apply(*store, {.gradient = kA, .step = 0, .keep_previous = true}, {}));
  const absl::Cord previous =
      store->Lend(ReadFrom::kPrevious, nullptr, NumberFormat::kFp32).value();
  CHECK(previous == current);
  store->Release({});
  REQUIRE_OK(store->Keep({kA}, Gradient(gradient)));
  REQUIRE_OK(store->Keep({kB}, Gradient(gradient)));
  CHECK(std::memcmp(current.TryFlat()->data(), values.data(), current.size()) == 0);
  const auto another = MakeStore(Rule(OptimizerKind::kMomentum), Numbers(9, 100));
  v1::ShardSnapshot other;
  REQUIRE_OK(another->Save(false, &other));
  const absl::Cord now = store->Lend(ReadFrom::kCurrent, nullptr, NumberFormat::kFp32).value();
  const std::string before(now);
  REQUIRE_OK(store->Restore(other));
  CHECK(now == before);
}

TEST_CASE("Dense store: of version 0 a snapshot without state begins as a new store does",
          "[server]") {
  OptimizerConfig rule =
      Rule(GENERATE(OptimizerKind::kSgd, OptimizerKind::kAdagrad, OptimizerKind::kAdam));
  rule.initial_accumulator = 0.25f;
  const std::vector<float> values = Numbers(1, 100), gradient = Numbers(5, 100);
  const auto expected = MakeStore(rule, values);
  const auto store = MakeStore(rule, Numbers(9, 100));
  v1::ShardSnapshot snapshot;
  snapshot.set_elements(100);
  snapshot.set_values(values.data(), values.size() * sizeof(float));
  REQUIRE_OK(store->Restore(snapshot));
  for (int64_t step = 0; step < 2; ++step) {
    REQUIRE_OK(Apply(*store, {.step = step}, Gradient(gradient)));
    REQUIRE_OK(Apply(*expected, {.step = step}, Gradient(gradient)));
  }
  CHECK(BitsOf(store->Read(ReadFrom::kCurrent)) == BitsOf(expected->Read(ReadFrom::kCurrent)));
  snapshot.mutable_state()->set_version(1);
  if (rule.kind == OptimizerKind::kSgd) return;
  CHECK_STATUS(store->Restore(snapshot), absl::StatusCode::kDataLoss, "0 slots of optimizer state");
}

TEST_CASE("Dense store: a lent buffer outlives its store", "[server]") {
  absl::Cord lent;
  {
    const auto store = MakeStore(Rule(OptimizerKind::kSgd), {1.0f, 2.0f});
    lent = store->Lend(ReadFrom::kCurrent, nullptr, NumberFormat::kFp32).value();
  }
  float second = 0;
  std::memcpy(&second, lent.TryFlat()->data() + sizeof(float), sizeof second);
  CHECK(second == 2.0f);
}

TEST_CASE("Dense store: each segment follows its own rule", "[server]") {
  OptimizerConfig slow = Rule(OptimizerKind::kMovingAverage), fast = slow;
  slow.momentum = 0.25f;
  fast.momentum = 0.5f;
  REQUIRE_OK_AND_ASSIGN(std::unique_ptr<DenseStore> store,
                        DenseStore::Make(3, {{.begin = 0, .end = 1, .config = slow},
                                             {.begin = 1, .end = 3, .config = fast}}));
  REQUIRE_OK(store->SetValues([](absl::Span<float> to) { std::fill(to.begin(), to.end(), 4.0f); }));
  const std::vector<float> observed = {8.0f, 8.0f, 0.0f};
  REQUIRE_OK(Apply(*store, {.step = 0}, Gradient(observed)));
  CHECK(BitsOf(store->Read(ReadFrom::kCurrent)) == BitsOf(std::vector<float>{5.0f, 6.0f, 2.0f}));
}

TEST_CASE("Dense store: a dropped gradient's buffer is used again", "[server]") {
  const auto store = MakeStore(Rule(OptimizerKind::kSgd), Numbers(1, 100));
  const std::vector<float> gradient = Numbers(5, 100);
  REQUIRE_OK(store->Keep({kA}, Gradient(gradient)));
  const int64_t bytes = store->bytes();
  store->Drop({kA});
  REQUIRE_OK(store->Keep({kB}, Gradient(gradient)));
  CHECK(store->bytes() == bytes);
}

}  // namespace
}  // namespace capstan::server::dense_store_test
