// A GPU's shards, on a fake one: the bits of the host's updates, in every order.
#include "server/device/cuda_shard_device.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "common/random/philox.h"
#include "common/status/status_macros.h"
#include "common/testing/status_matchers.h"
#include "common/types/unaligned_float.h"
#include "kernels/cuda/element_rules.h"
#include "kernels/reference/reference_backend.h"
#include "kernels/testing/fake_device.h"
#include "server/optimizer/optimizer.h"

namespace capstan::server::cuda_shard_device_test {
namespace {

using kernels::FakeDevice;

constexpr int64_t kCount = 1003;
constexpr uint64_t kSeeds = 2 * kernels::kFakeDeviceOrders;

std::vector<float> Numbers(uint64_t key) {
  std::vector<float> numbers;
  for (int64_t i = 0; i < kCount; ++i) numbers.push_back(ToUnitFloat(PhiloxWord(key, i)) - 0.5f);
  return numbers;
}

OptimizerConfig Rule(OptimizerKind kind) {
  OptimizerConfig config;
  config.kind = kind;
  config.learning_rate = 0.1f;
  config.weight_decay = 0.01f;
  config.clip_value = 0.4f;
  return config;
}

// Weights, then the state's slots; then the weights after each step.
using Numbers2 = std::vector<std::vector<float>>;

Numbers2 Initial(const OptimizerConfig& rule) {
  Numbers2 arrays = {Numbers(1)};
  for (int slot = 0; slot < StateSlots(rule); ++slot) arrays.push_back(Numbers(20));
  // Adam's second moment is a mean of squares.
  for (float& value : arrays.back()) value = arrays.size() == 3 ? value * value : value;
  return arrays;
}

constexpr int64_t kSteps = 3;

Numbers2 OnHost(const OptimizerConfig& rule) {
  Numbers2 arrays = Initial(rule), weights;
  std::vector<float*> state;
  for (size_t i = 1; i < arrays.size(); ++i) state.push_back(arrays[i].data());
  for (int64_t step = 0; step < kSteps; ++step) {
    const std::vector<float> gradient = Numbers(10 + static_cast<uint64_t>(step));
    Apply(rule, step, kCount, arrays[0].data(),
          reinterpret_cast<const UnalignedFloat*>(gradient.data()), state, arrays[0].data());
    weights.push_back(arrays[0]);
  }
  arrays.insert(arrays.end(), weights.begin(), weights.end());
  return arrays;
}

absl::StatusOr<Numbers2> OnDevice(const OptimizerConfig& rule, ShardDevice& device) {
  absl::StatusOr<std::unique_ptr<DeviceShard>> shard = device.Make(kCount, rule);
  if (!shard.ok()) return shard.status();
  Numbers2 arrays = Initial(rule), weights;
  const std::vector<absl::Span<const float>> state(arrays.begin() + 1, arrays.end());
  absl::Status status = (*shard)->Write(arrays[0], state);
  for (int64_t step = 0; status.ok() && step < kSteps; ++step) {
    const std::vector<float> gradient = Numbers(10 + static_cast<uint64_t>(step));
    std::fill(arrays[0].begin(), arrays[0].end(), 0.0f);
    status = (*shard)->Update(
        step, [&gradient](float* to) { std::copy(gradient.begin(), gradient.end(), to); },
        absl::MakeSpan(arrays[0]));
    if (status.ok()) status = (*shard)->Finish();
    weights.push_back(arrays[0]);
  }
  for (size_t i = 1; status.ok() && i < arrays.size(); ++i) {
    status = (*shard)->ReadState(static_cast<int>(i) - 1, absl::MakeSpan(arrays[i]));
  }
  if (!status.ok()) return status;
  arrays.insert(arrays.end(), weights.begin(), weights.end());
  return arrays;
}

bool SameBits(const Numbers2& a, const Numbers2& b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), [](auto& x, auto& y) {
           return std::memcmp(x.data(), y.data(), kCount * sizeof(float)) == 0;
         });
}

// A device and the fake that it is made of.
struct Fake {
  explicit Fake(uint64_t seed, int64_t memory_bytes = int64_t{1} << 30) {
    auto backend = std::make_unique<FakeDevice>(
        kernels::MakeReferenceBackend(),
        FakeDevice::Options{.seed = seed, .memory_bytes = memory_bytes});
    gpu = backend.get();
    auto made = MakeCudaShardDevice("fake", std::move(backend));
    REQUIRE_OK(made);
    device = *std::move(made);
  }
  FakeDevice* gpu = nullptr;
  std::unique_ptr<ShardDevice> device;
};

TEST_CASE("Shard device: updates have the host's bits, in every order", "[server]") {
  for (const kernels::cuda::UpdateRuleTraits& traits : kernels::cuda::kUpdateRules) {
    const OptimizerConfig rule = Rule(traits.rule);
    INFO("rule " << static_cast<int>(traits.rule));
    if (!traits.on_device) {
      CHECK_FALSE(Fake(0).device->Knows(rule));
      continue;
    }
    const Numbers2 expected = OnHost(rule);
    for (uint64_t seed = 0; seed < kSeeds; ++seed) {
      INFO("seed " << seed);
      Fake fake(seed);
      REQUIRE(fake.device->Knows(rule));
      REQUIRE_OK_AND_ASSIGN(const Numbers2 arrays, OnDevice(rule, *fake.device));
      CHECK(SameBits(arrays, expected));
    }
  }
}

TEST_CASE("Shard device: each copy, and each wait, is needed", "[server]") {
  const OptimizerConfig rule = Rule(OptimizerKind::kAdam);
  const Numbers2 expected = OnHost(rule);
  for (const auto call :
       {FakeDevice::Call::kCopy, FakeDevice::Call::kWait, FakeDevice::Call::kAwait}) {
    Fake counted(0);
    counted.gpu->Forget(call, -1);
    REQUIRE_OK(OnDevice(rule, *counted.device));
    const int64_t calls = counted.gpu->calls_counted();
    REQUIRE(calls >= kSteps);
    for (int64_t number = 0; number < calls; ++number) {
      INFO("call " << static_cast<int>(call) << ", number " << number);
      bool noticed = false;
      for (uint64_t seed = 0; seed < kSeeds && !noticed; ++seed) {
        Fake fake(seed);
        fake.gpu->Forget(call, number);
        const absl::StatusOr<Numbers2> arrays = OnDevice(rule, *fake.device);
        noticed = !arrays.ok() || !SameBits(*arrays, expected);
      }
      CHECK(noticed);
    }
  }
}

TEST_CASE("Shard device: updates of many shards are enqueued before the first is waited for",
          "[server]") {
  const OptimizerConfig rule = Rule(OptimizerKind::kMomentum);
  const Numbers2 expected = OnHost(rule);
  for (const size_t count : {2, 8, 19}) {
    for (uint64_t seed = 0; seed < kSeeds; ++seed) {
      INFO(count << " shards, seed " << seed);
      Fake fake(seed);
      std::vector<std::unique_ptr<DeviceShard>> shards;
      std::vector<std::vector<float>> values(count, std::vector<float>(kCount));
      const Numbers2 initial = Initial(rule);
      const std::vector<absl::Span<const float>> state(initial.begin() + 1, initial.end());
      for (size_t i = 0; i < count; ++i) {
        REQUIRE_OK_AND_ASSIGN(auto shard, fake.device->Make(kCount, rule));
        REQUIRE_OK(shard->Write(initial[0], state));
        REQUIRE_OK(shard->Finish());  // There is no update to wait for.
        shards.push_back(std::move(shard));
      }
      for (int64_t step = 0; step < kSteps; ++step) {
        const std::vector<float> gradient = Numbers(10 + static_cast<uint64_t>(step));
        fake.gpu->Forget(FakeDevice::Call::kAwait, -1);
        for (size_t i = 0; i < count; ++i) {
          REQUIRE_OK(shards[i]->Update(
              step, [&](float* to) { std::copy(gradient.begin(), gradient.end(), to); },
              absl::MakeSpan(values[i])));
        }
        // Only who finds all slots taken waits, for the oldest.
        CHECK(fake.gpu->calls_counted() == static_cast<int64_t>(std::max<size_t>(count, 8) - 8));
        for (size_t i = count; i-- > 0;) REQUIRE_OK(shards[i]->Finish());
        CHECK(fake.gpu->calls_counted() == static_cast<int64_t>(count));
        const size_t updated = expected.size() - static_cast<size_t>(kSteps - step);
        for (const std::vector<float>& each : values) CHECK(SameBits({each}, {expected[updated]}));
      }
    }
  }
}

TEST_CASE("Shard device: threads update beside each other, and take each other's places",
          "[server]") {
  const OptimizerConfig rule = Rule(OptimizerKind::kMomentum);
  const Numbers2 expected = OnHost(rule);
  constexpr int kThreads = 4;
  constexpr size_t kEach = 5;  // All threads' are more than can be on their way.
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    INFO("seed " << seed);
    Fake fake(seed);
    std::vector<absl::Status> outcomes(kThreads);
    std::vector<int> wrong(kThreads);
    // Uses no REQUIRE, because Catch2 allows it only on the test's own thread.
    const auto update = [&](int* different) -> absl::Status {
      const Numbers2 initial = Initial(rule);
      const std::vector<absl::Span<const float>> state(initial.begin() + 1, initial.end());
      std::vector<std::unique_ptr<DeviceShard>> shards;
      std::vector<std::vector<float>> values(kEach, std::vector<float>(kCount));
      for (size_t i = 0; i < kEach; ++i) {
        CAPSTAN_ASSIGN_OR_RETURN(auto shard, fake.device->Make(kCount, rule));
        CAPSTAN_RETURN_IF_ERROR(shard->Write(initial[0], state));
        shards.push_back(std::move(shard));
      }
      for (int64_t step = 0; step < kSteps; ++step) {
        const std::vector<float> gradient = Numbers(10 + static_cast<uint64_t>(step));
        for (size_t i = 0; i < kEach; ++i) {
          CAPSTAN_RETURN_IF_ERROR(shards[i]->Update(
              step, [&](float* to) { std::copy(gradient.begin(), gradient.end(), to); },
              absl::MakeSpan(values[i])));
        }
        for (const auto& shard : shards) CAPSTAN_RETURN_IF_ERROR(shard->Finish());
        const std::vector<float>& right =
            expected[expected.size() - static_cast<size_t>(kSteps - step)];
        for (const auto& each : values) *different += SameBits({each}, {right}) ? 0 : 1;
      }
      return absl::OkStatus();
    };
    std::vector<std::thread> threads;
    for (size_t i = 0; i < kThreads; ++i) {
      threads.emplace_back([&, i] { outcomes[i] = update(&wrong[i]); });
    }
    for (std::thread& thread : threads) thread.join();
    for (const absl::Status& outcome : outcomes) REQUIRE_OK(outcome);
    CHECK(wrong == std::vector<int>(kThreads));
  }
}

TEST_CASE("Shard device: a shard that goes while its update is on its way takes nothing along",
          "[server]") {
  const OptimizerConfig rule = Rule(OptimizerKind::kSgd);
  Fake fake(0);
  std::vector<float> values(kCount, 1.0f);
  for (int i = 0; i < 20; ++i) {
    REQUIRE_OK_AND_ASSIGN(const auto shard, fake.device->Make(kCount, rule));
    REQUIRE_OK(shard->Write(Numbers(1), {}));
    REQUIRE_OK(shard->Update(
        0, [](float* to) { std::fill(to, to + kCount, 0.5f); }, absl::MakeSpan(values)));
  }
  CHECK(values == std::vector<float>(kCount, 1.0f));
  REQUIRE_OK_AND_ASSIGN(const Numbers2 arrays, OnDevice(rule, *fake.device));
  CHECK(SameBits(arrays, OnHost(rule)));
}

TEST_CASE("Shard device: shards do not disturb each other, and give their memory back",
          "[server]") {
  const OptimizerConfig rule = Rule(OptimizerKind::kMomentum);
  const int64_t staging = ShardDevice::kElementsMax * 4;
  Fake fake(kernels::kFakeDeviceOrders, staging + 3 * 2 * 1024 * 4);
  for (int round = 0; round < 3; ++round) {
    REQUIRE_OK_AND_ASSIGN(const auto one, fake.device->Make(kCount, rule));
    REQUIRE_OK_AND_ASSIGN(const auto two, fake.device->Make(kCount, rule));
    const std::vector<float> velocity = Numbers(3);
    const absl::Span<const float> slots[] = {velocity};
    REQUIRE_OK(two->Write(Numbers(2), slots));
    REQUIRE_OK_AND_ASSIGN(const Numbers2 third, OnDevice(rule, *fake.device));
    CHECK(SameBits(third, OnHost(rule)));
    std::vector<float> state(kCount);
    REQUIRE_OK(two->ReadState(0, absl::MakeSpan(state)));
    CHECK(state == velocity);
    REQUIRE_OK_AND_ASSIGN(const auto last, fake.device->Make(kCount, rule));
    CHECK_STATUS(fake.device->Make(kCount, rule), absl::StatusCode::kResourceExhausted,
                 "fake: memory needs 8192 bytes, free are 0");
  }
}

TEST_CASE("Shard device: what --device cannot mean is refused, and what is missing named",
          "[server]") {
  REQUIRE_OK_AND_ASSIGN(const auto none, OpenShardDevice("cpu"));
  CHECK(none == nullptr);
  for (const char* wrong : {"", "gpu", "cuda:", "cuda:-1", "cuda:64", "cuda0", "cuda:1x"}) {
    INFO(wrong);
    CHECK_STATUS(OpenShardDevice(wrong), absl::StatusCode::kInvalidArgument,
                 "expected \"cpu\", \"cuda\" or \"cuda:<index>\", index 0 to 63");
  }
  setenv("CAPSTAN_CUDA_PLUGIN", "/none/libcapstan_cuda.so", 1);
  CHECK_STATUS(OpenShardDevice("cuda:2"), absl::StatusCode::kNotFound,
               "GPU 2: no CUDA plugin could be loaded: /none/libcapstan_cuda.so");
}

}  // namespace
}  // namespace capstan::server::cuda_shard_device_test
