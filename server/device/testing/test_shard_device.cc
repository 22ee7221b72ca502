#include "server/device/testing/test_shard_device.h"

#include <cstdlib>
#include <memory>

#include "common/testing/status_matchers.h"
#include "kernels/reference/reference_backend.h"
#include "kernels/testing/fake_device.h"
#include "server/device/cuda_shard_device.h"

namespace capstan::server {

ShardDevice* TestShardDevice() {
  if (std::getenv("CAPSTAN_TEST_SHARD_DEVICE") == nullptr) return nullptr;
  static ShardDevice* const device = [] {
    auto made = MakeCudaShardDevice(
        "fake", std::make_unique<kernels::FakeDevice>(
                    kernels::MakeReferenceBackend(),
                    kernels::FakeDevice::Options{.seed = kernels::kFakeDeviceOrders}));
    REQUIRE_OK(made);
    return made->release();
  }();
  return device;
}

}  // namespace capstan::server
