#include "kernels/testing/fake_device.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <memory>
#include <vector>

#include "common/random/philox.h"
#include "common/testing/status_matchers.h"
#include "kernels/reference/reference_backend.h"

namespace capstan::kernels::fake_device_test {
namespace {

constexpr uint64_t kSeeds = 2 * kFakeDeviceOrders;
constexpr int64_t kCount = 8;
constexpr int64_t kBytes = kCount * 4;

// The steps that Relu::Run takes; a test leaves some out.
struct Steps {
  bool upload = true;
  bool compute_waits = true;
  bool download_waits = true;
  bool host_waits = true;
};

// Computes y = relu(x) on a device.
class Relu {
 public:
  explicit Relu(uint64_t seed) : device_(MakeReferenceBackend(), {.seed = seed}) {
    OpDesc desc;
    desc.kind = OpKind::kReluForward;
    desc.n = 1;
    desc.c = kCount;
    REQUIRE_OK_AND_ASSIGN(plan_, device_.Prepare(desc));
    REQUIRE_OK_AND_ASSIGN(x_, device_.TryAllocate(kBytes));
    REQUIRE_OK_AND_ASSIGN(y_, device_.TryAllocate(kBytes));
    REQUIRE_OK_AND_ASSIGN(pinned_, device_.AllocatePinned(kBytes));
  }

  // Sets every element of x to `value`, and returns the first value of y.
  float Run(float value, const Steps& steps) {
    auto* const host = static_cast<float*>(pinned_);
    for (int64_t i = 0; i < kCount; ++i) host[i] = value;
    REQUIRE_OK_AND_ASSIGN(const auto uploaded, device_.MakeEvent(EventUse::kOrder));
    REQUIRE_OK_AND_ASSIGN(const auto computed, device_.MakeEvent(EventUse::kOrder));
    REQUIRE_OK_AND_ASSIGN(const auto downloaded, device_.MakeEvent(EventUse::kOrder));
    if (steps.upload) REQUIRE_OK(device_.CopyAsync(Stream::kUpload, x_, pinned_, kBytes));
    REQUIRE_OK(device_.Record(*uploaded, Stream::kUpload));
    if (steps.compute_waits) REQUIRE_OK(device_.Wait(Stream::kCompute, *uploaded));
    REQUIRE_OK(
        device_.Run(*plan_, {ViewOf(At(x_), kCount)}, {ViewOf(At(y_), kCount)}, RunOptions()));
    REQUIRE_OK(device_.Record(*computed, Stream::kCompute));
    if (steps.download_waits) REQUIRE_OK(device_.Wait(Stream::kDownload, *computed));
    REQUIRE_OK_AND_ASSIGN(void* const result, device_.AllocatePinned(kBytes));
    REQUIRE_OK(device_.CopyAsync(Stream::kDownload, result, y_, kBytes));
    REQUIRE_OK(device_.Record(*downloaded, Stream::kDownload));
    if (steps.host_waits) REQUIRE_OK(device_.Await(*downloaded));
    const float seen = *At(result);
    REQUIRE_OK(device_.Synchronize());
    device_.FreePinned(result);
    return seen;
  }

  static float* At(void* memory) { return static_cast<float*>(memory); }

  FakeDevice device_;
  std::unique_ptr<Plan> plan_;
  void* x_ = nullptr;
  void* y_ = nullptr;
  void* pinned_ = nullptr;
};

int WrongSeeds(const Steps& steps) {
  int wrong = 0;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    if (Relu(seed).Run(3.0f, steps) != 3.0f) ++wrong;
  }
  return wrong;
}

TEST_CASE("Fake device: what waits for events is right in every order", "[kernels]") {
  CHECK(WrongSeeds({}) == 0);
}

TEST_CASE("Fake device: what was forgotten is seen in some order", "[kernels]") {
  CHECK(WrongSeeds({.upload = false}) == kSeeds);
  CHECK(WrongSeeds({.compute_waits = false}) > 0);
  CHECK(WrongSeeds({.download_waits = false}) > 0);
  CHECK(WrongSeeds({.host_waits = false}) == kSeeds);
}

TEST_CASE("Fake device: calls that are taken away are seen like those that were forgotten",
          "[kernels]") {
  const auto wrong = [](FakeDevice::Call call, int64_t number) {
    int count = 0;
    for (uint64_t seed = 0; seed < kSeeds; ++seed) {
      Relu relu(seed);
      relu.device_.Forget(call, number);
      if (relu.Run(3.0f, {}) != 3.0f) ++count;
    }
    return count;
  };
  CHECK(wrong(FakeDevice::Call::kCopy, 0) > 0);
  CHECK(wrong(FakeDevice::Call::kCopy, 1) > 0);
  CHECK(wrong(FakeDevice::Call::kWait, 0) > 0);
  CHECK(wrong(FakeDevice::Call::kWait, 1) > 0);
  CHECK(wrong(FakeDevice::Call::kAwait, 0) > 0);
  CHECK(wrong(FakeDevice::Call::kWait, 2) == 0);  // There is no third.
}

TEST_CASE("Fake device: pinned memory that is written again too early changes what is uploaded",
          "[kernels]") {
  Relu relu(0);
  auto* const host = Relu::At(relu.pinned_);
  for (int64_t i = 0; i < kCount; ++i) host[i] = 1.0f;
  REQUIRE_OK(relu.device_.CopyAsync(Stream::kUpload, relu.x_, relu.pinned_, kBytes));
  host[0] = 2.0f;
  std::vector<float> seen(kCount);
  REQUIRE_OK(relu.device_.Copy(seen.data(), relu.x_, kBytes));
  CHECK(seen[0] == 2.0f);
}

TEST_CASE("Fake device: an op on host memory, and memory that was freed, are errors", "[kernels]") {
  Relu relu(0);
  std::vector<float> host(kCount);
  REQUIRE_OK(relu.device_.Run(*relu.plan_, {ViewOf(host.data(), kCount)},
                              {ViewOf(Relu::At(relu.y_), kCount)}, RunOptions()));
  CHECK_STATUS(relu.device_.Synchronize(), absl::StatusCode::kInvalidArgument,
               "expected memory of the device");

  Relu other(0);
  other.device_.Free(other.x_);
  REQUIRE_OK(other.device_.Run(*other.plan_, {ViewOf(Relu::At(other.x_), kCount)},
                               {ViewOf(Relu::At(other.y_), kCount)}, RunOptions()));
  CHECK_STATUS(other.device_.Synchronize(), absl::StatusCode::kInvalidArgument,
               "expected memory of the device");
  CHECK_STATUS(other.device_.CopyAsync(Stream::kUpload, other.y_, host.data(), kBytes),
               absl::StatusCode::kInvalidArgument, "expected memory of the device, or pinned");
}

TEST_CASE("Fake device: events for timing tell in which order they came", "[kernels]") {
  FakeDevice device(MakeReferenceBackend(), {});
  REQUIRE_OK_AND_ASSIGN(const auto first, device.MakeEvent(EventUse::kTiming));
  REQUIRE_OK_AND_ASSIGN(const auto second, device.MakeEvent(EventUse::kTiming));
  REQUIRE_OK_AND_ASSIGN(const auto plain, device.MakeEvent(EventUse::kOrder));
  for (DeviceEvent* event : {first.get(), second.get(), plain.get()}) {
    REQUIRE_OK(device.Record(*event, Stream::kCompute));
  }
  constexpr auto kEarly = absl::StatusCode::kFailedPrecondition;
  CHECK_STATUS(device.SecondsBetween(*first, *second), kEarly, "has not come");
  REQUIRE_OK(device.Synchronize());
  REQUIRE_OK_AND_ASSIGN(const double seconds, device.SecondsBetween(*first, *second));
  CHECK(seconds > 0);
  REQUIRE_OK_AND_ASSIGN(const double back, device.SecondsBetween(*second, *first));
  CHECK(back == -seconds);
  CHECK_STATUS(device.SecondsBetween(*first, *plain), kEarly, "has no time");
}

TEST_CASE("Fake device: has as much memory as it is told, and says what is free", "[kernels]") {
  FakeDevice device(MakeReferenceBackend(), {.memory_bytes = 1000});
  REQUIRE_OK_AND_ASSIGN(void* const memory, device.TryAllocate(600));
  CHECK_STATUS(device.TryAllocate(600), absl::StatusCode::kResourceExhausted,
               "memory needs 600 bytes, free are 400 of 1000");
  device.Free(memory);
  REQUIRE_OK_AND_ASSIGN(const DeviceMemoryInfo info, device.Memory());
  CHECK(info.free_bytes == 1000);
  CHECK(info.total_bytes == 1000);
}

TEST_CASE("Fake device: bf16 tensors are rounded after each op", "[kernels]") {
  FakeDevice device(MakeReferenceBackend(), {.tensor_type = DataType::kBfloat16});
  REQUIRE_OK_AND_ASSIGN(void* const wide, device.TryAllocate(kBytes));
  REQUIRE_OK_AND_ASSIGN(void* const narrow, device.TryAllocate(kBytes / 2));
  std::vector<float> values(kCount, 1.0f + 0x1p-9f);
  REQUIRE_OK(device.Copy(wide, values.data(), kBytes));
  const TensorView fp32 = ViewOf(static_cast<float*>(wide), kCount);
  const TensorView bf16 = {narrow, kCount, DataType::kBfloat16};
  REQUIRE_OK(device.Convert(Stream::kDownload, fp32, bf16));
  REQUIRE_OK(device.Synchronize());
  REQUIRE_OK(device.Convert(Stream::kCompute, bf16, fp32));
  REQUIRE_OK(device.Copy(values.data(), wide, kBytes));
  CHECK(values == std::vector<float>(kCount, 1.0f));
}

TEST_CASE("Fake device: a graph runs what was recorded, when it is launched", "[kernels]") {
  Relu relu(0);
  const std::vector<float> values(kCount, 5.0f);
  REQUIRE_OK(relu.device_.Copy(relu.x_, values.data(), kBytes));
  REQUIRE_OK(relu.device_.BeginCapture());
  REQUIRE_OK(relu.device_.Run(*relu.plan_, {ViewOf(Relu::At(relu.x_), kCount)},
                              {ViewOf(Relu::At(relu.y_), kCount)}, RunOptions()));
  REQUIRE_OK_AND_ASSIGN(const auto graph, relu.device_.EndCapture());
  REQUIRE_OK(relu.device_.Synchronize());
  CHECK(relu.device_.counts().runs == 0);
  CHECK(relu.device_.counts().plain_runs == 0);
  REQUIRE_OK(graph->Launch());
  std::vector<float> seen(kCount);
  REQUIRE_OK(relu.device_.Copy(seen.data(), relu.y_, kBytes));
  CHECK(seen == values);
  REQUIRE_OK(relu.device_.Run(*relu.plan_, {ViewOf(Relu::At(relu.x_), kCount)},
                              {ViewOf(Relu::At(relu.y_), kCount)}, RunOptions()));
  CHECK(relu.device_.counts().plain_runs == 1);
}

TEST_CASE("Fake device: a graph with dropout draws by the key that lies there at its launch",
          "[kernels]") {
  FakeDevice device(MakeReferenceBackend(), {});
  OpDesc desc;
  desc.kind = OpKind::kDropoutForward;
  desc.n = 1;
  desc.c = kCount;
  desc.dropout_rate = 0.5f;
  REQUIRE_OK_AND_ASSIGN(const auto dropout, device.Prepare(desc));
  REQUIRE_OK_AND_ASSIGN(void* const x, device.TryAllocate(kBytes));
  REQUIRE_OK_AND_ASSIGN(void* const y, device.TryAllocate(kBytes));
  REQUIRE_OK_AND_ASSIGN(void* const key, device.TryAllocate(kKeyWords * 4));
  const std::vector<float> values(kCount, 1.0f);
  REQUIRE_OK(device.Copy(x, values.data(), kBytes));
  REQUIRE_OK(device.BeginCapture());
  REQUIRE_OK(device.Run(
      *dropout, {ViewOf(Relu::At(x), kCount), ViewOf(static_cast<int32_t*>(key), kKeyWords)},
      {ViewOf(Relu::At(y), kCount)}, RunOptions()));
  REQUIRE_OK_AND_ASSIGN(const auto graph, device.EndCapture());
  for (const uint64_t step_key : {uint64_t{3}, uint64_t{1} << 63, uint64_t{3}}) {
    REQUIRE_OK(device.Copy(key, WordsOfKey(step_key).data(), kKeyWords * 4));
    REQUIRE_OK(graph->Launch());
    std::vector<float> seen(kCount), expected;
    REQUIRE_OK(device.Copy(seen.data(), y, kBytes));
    for (uint64_t i = 0; i < kCount; ++i) {
      expected.push_back(PhiloxWord(step_key, i) >= uint32_t{1} << 31 ? 2.0f : 0.0f);
    }
    CHECK(seen == expected);
  }
}

}  // namespace
}  // namespace capstan::kernels::fake_device_test
