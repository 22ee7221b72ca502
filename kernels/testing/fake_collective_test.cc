#include "kernels/testing/fake_collective.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/testing/status_matchers.h"
#include "kernels/backend_group.h"
#include "kernels/reference/reference_backend.h"

namespace capstan::kernels::fake_collective_test {
namespace {

constexpr uint64_t kSeeds = 2 * kFakeDeviceOrders;
constexpr int64_t kCount = 5;
constexpr int64_t kBytes = kCount * 4;

std::unique_ptr<FakeDevice> MakeDevice(int index, uint64_t seed, int64_t runs_until_lost = -1) {
  return std::make_unique<FakeDevice>(
      MakeReferenceBackend(),
      FakeDevice::Options{.seed = seed, .index = index, .runs_until_lost = runs_until_lost});
}

// A collective of devices, each with one array. The calls are explicit, so that a test can leave
// some out.
class Group {
 public:
  Group(int members, uint64_t seed) {
    for (int i = 0; i < members; ++i) {
      devices_.push_back(MakeDevice(i, seed + static_cast<uint64_t>(i)));
      members_.push_back(devices_.back().get());
      REQUIRE_OK_AND_ASSIGN(void* const array, devices_.back()->TryAllocate(kBytes));
      arrays_.push_back(static_cast<float*>(array));
      REQUIRE_OK_AND_ASSIGN(void* const pinned, devices_.back()->AllocatePinned(kBytes));
      pinned_.push_back(static_cast<float*>(pinned));
    }
    REQUIRE_OK_AND_ASSIGN(collective_, devices_[0]->Join(members_));
  }

  // Uploads value + i to member i. If `wait`, the stream `then` waits for the upload.
  void Upload(float value, Stream then, bool wait) {
    for (size_t i = 0; i < devices_.size(); ++i) {
      FakeDevice& device = *devices_[i];
      std::fill_n(pinned_[i], kCount, value + static_cast<float>(i));
      REQUIRE_OK(device.CopyAsync(Stream::kUpload, arrays_[i], pinned_[i], kBytes));
      REQUIRE_OK_AND_ASSIGN(auto event, device.MakeEvent(EventUse::kOrder));
      REQUIRE_OK(device.Record(*event, Stream::kUpload));
      if (wait) REQUIRE_OK(device.Wait(then, *event));
      events_.push_back(std::move(event));
    }
  }

  std::vector<float> Read(size_t member) {
    std::vector<float> seen(kCount);
    REQUIRE_OK(devices_[member]->Copy(seen.data(), arrays_[member], kBytes));
    return seen;
  }

  std::vector<std::unique_ptr<FakeDevice>> devices_;
  std::vector<DeviceBackend*> members_;
  std::vector<float*> arrays_, pinned_;
  std::vector<std::unique_ptr<DeviceEvent>> events_;
  std::unique_ptr<Collective> collective_;
};

TEST_CASE("Fake collective: adds up to the first, and hands on from it, in every order",
          "[kernels]") {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    for (const int members : {1, 2, 3, 8}) {
      INFO("seed " << seed << ", " << members << " members");
      Group group(members, seed);
      group.Upload(1, Stream::kDownload, /*wait=*/true);
      REQUIRE_OK(group.collective_->Reduce(Stream::kDownload, group.arrays_, kCount));
      const float sum = static_cast<float>(members * (members + 1) / 2);
      CHECK(group.Read(0) == std::vector<float>(kCount, sum));
      for (size_t i = 1; i < group.devices_.size(); ++i) {
        CHECK(group.Read(i) == std::vector<float>(kCount, 1.0f + static_cast<float>(i)));
      }
      REQUIRE_OK(group.collective_->Broadcast(Stream::kUpload, group.arrays_, kCount - 1));
      std::vector<float> handed_on(kCount, sum);
      for (size_t i = 1; i < group.devices_.size(); ++i) {
        handed_on.back() = 1.0f + static_cast<float>(i);  // Broadcast left the last element out.
        CHECK(group.Read(i) == handed_on);
      }
    }
  }
}

TEST_CASE("Fake collective: sums for all, sums cut into parts, and parts put together",
          "[kernels]") {
  constexpr int64_t kPart = 2;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    Group group(2, seed);
    const auto upload = [&group] { group.Upload(1, Stream::kDownload, /*wait=*/true); };
    upload();
    REQUIRE_OK(group.collective_->AllReduce(Stream::kDownload, group.arrays_, kCount));
    for (const size_t i : {0, 1}) CHECK(group.Read(i) == std::vector<float>(kCount, 3.0f));

    upload();
    REQUIRE_OK(group.collective_->ReduceScatter(Stream::kDownload, group.arrays_, kPart));
    for (const size_t i : {0, 1}) {
      const std::vector<float> seen = group.Read(i);
      for (size_t k = 0; k < 2 * kPart; ++k) {
        if (k / kPart == i) CHECK(seen[k] == 3.0f);
        if (k / kPart != i) CHECK(std::isnan(seen[k]));  // Other parts are undefined.
      }
      CHECK(seen.back() == 1.0f + static_cast<float>(i));  // This element is behind all parts.
    }

    upload();
    REQUIRE_OK(group.collective_->AllGather(Stream::kDownload, group.arrays_, kPart));
    for (const size_t i : {0, 1}) {
      CHECK(group.Read(i) == std::vector<float>{1, 1, 2, 2, 1.0f + static_cast<float>(i)});
    }
  }
}

TEST_CASE("Fake collective: what does not wait for its arrays is seen in some order", "[kernels]") {
  int wrong = 0;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    Group group(2, seed);
    group.Upload(1, Stream::kDownload, /*wait=*/false);
    REQUIRE_OK(group.collective_->Reduce(Stream::kDownload, group.arrays_, kCount));
    if (group.Read(0) != std::vector<float>(kCount, 3.0f)) ++wrong;
  }
  CHECK(wrong > 0);
}

TEST_CASE("Fake collective: a call that is taken away is seen", "[kernels]") {
  Group group(2, 0);
  group.devices_[0]->Forget(FakeDevice::Call::kTogether, 0);
  group.Upload(1, Stream::kDownload, /*wait=*/true);
  REQUIRE_OK(group.collective_->Reduce(Stream::kDownload, group.arrays_, kCount));
  CHECK(group.Read(0) == std::vector<float>(kCount, 1.0f));
}

TEST_CASE("Fake collective: who waits for a device that is lost is told its name", "[kernels]") {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    Group group(3, seed);
    group.devices_[2] = nullptr;  // A device that fails takes the place of member 2.
    group.collective_ = nullptr;
    auto lost = MakeDevice(2, seed, /*runs_until_lost=*/0);
    REQUIRE_OK_AND_ASSIGN(void* const array, lost->TryAllocate(kBytes));
    group.arrays_[2] = static_cast<float*>(array);
    group.members_[2] = lost.get();
    REQUIRE_OK_AND_ASSIGN(group.collective_, group.devices_[0]->Join(group.members_));
    OpDesc desc;
    desc.kind = OpKind::kReluForward;
    desc.n = 1;
    desc.c = kCount;
    REQUIRE_OK_AND_ASSIGN(const auto plan, lost->Prepare(desc));
    const TensorView view = ViewOf(group.arrays_[2], kCount);
    REQUIRE_OK(lost->Run(*plan, {view}, {view}, RunOptions()));
    REQUIRE_OK(group.collective_->Reduce(Stream::kCompute, group.arrays_, kCount));
    for (const size_t other : {1, 0}) {
      CHECK_STATUS(group.devices_[other]->Synchronize(), absl::StatusCode::kUnavailable,
                   "while it waits for fake GPU 2: fake GPU 2 has fallen off the bus");
    }
    group.collective_ = nullptr;
  }
}

TEST_CASE("Fake collective: what cannot be joined, or is not of it, is refused", "[kernels]") {
  constexpr auto kWrong = absl::StatusCode::kInvalidArgument;
  Group group(2, 0);
  const auto other = MakeDevice(7, 0);
  CHECK_STATUS(other->Join({other.get(), other.get()}), kWrong, "fake GPU 7 cannot be joined");
  CHECK_STATUS(other->Join({other.get(), group.devices_[0].get()}), kWrong,
               "fake GPU 0 cannot be joined: it is another kind of device, or is joined already");
  CHECK_STATUS(other->Join({}), kWrong, "fake GPU 7 joins 0 devices, expected it first");
  CHECK_STATUS(group.collective_->Reduce(Stream::kUpload, {group.arrays_[0]}, kCount), kWrong,
               "1 arrays of 5, expected 2 of >= 0");
  CHECK_STATUS(group.collective_->Broadcast(Stream::kUpload, group.arrays_, -1), kWrong,
               "2 arrays of -1");
  REQUIRE_OK(group.devices_[1]->BeginCapture());
  CHECK_STATUS(group.collective_->Broadcast(Stream::kUpload, group.arrays_, kCount),
               absl::StatusCode::kFailedPrecondition, "not recorded");
  REQUIRE_OK(group.devices_[1]->EndCapture());
}

TEST_CASE("Backend group: is of one device or more, all with the same tensors", "[kernels]") {
  CHECK_STATUS(BackendGroup::Join({}), absl::StatusCode::kInvalidArgument, "no device to join");
  std::vector<std::unique_ptr<DeviceBackend>> devices;
  devices.push_back(MakeDevice(0, 0));
  devices.push_back(std::make_unique<FakeDevice>(
      MakeReferenceBackend(), FakeDevice::Options{.tensor_type = DataType::kBfloat16, .index = 1}));
  CHECK_STATUS(BackendGroup::Join(std::move(devices)), absl::StatusCode::kInvalidArgument,
               "fake GPU 1 has tensors of another type than fake GPU 0");
  devices.clear();
  for (int i = 0; i < 3; ++i) devices.push_back(MakeDevice(i, 0));
  REQUIRE_OK_AND_ASSIGN(const BackendGroup group, BackendGroup::Join(std::move(devices)));
  CHECK(group.size() == 3);
  CHECK(group[2].device()->Label() == "fake GPU 2");
  CHECK(group.collective() != nullptr);
  CHECK(BackendGroup(MakeReferenceBackend()).collective() == nullptr);
}

}  // namespace
}  // namespace capstan::kernels::fake_collective_test
