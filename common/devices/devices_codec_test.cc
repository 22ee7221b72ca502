#include "common/devices/devices_codec.h"

#include <catch2/catch.hpp>
#include <string>

#include "common/testing/status_matchers.h"

namespace capstan::devices_codec_test {
namespace {

const Devices kTwo = {.gpus = {{.index = 0,
                                .name = "H100",
                                .memory_bytes = 80,
                                .memory_free_bytes = 79,
                                .compute_capability = "9.0"},
                               {.index = 3, .name = "L4", .memory_bytes = 24}},
                      .driver_version = "570.86.15",
                      .cuda_version = "12.8",
                      .unusable = "the CUDA backend is not there"};

TEST_CASE("Devices: they come back from protobuf as they went in", "[common][devices]") {
  for (const Devices& devices : {Devices(), kTwo}) {
    v1::Devices message;
    DevicesToProto(devices, message);
    REQUIRE_OK_AND_ASSIGN(const Devices decoded, DevicesFromProto(message));
    CHECK(decoded == devices);
  }
}

TEST_CASE("Devices: what cannot be is refused, and long text is cut", "[common][devices]") {
  v1::Devices message;
  DevicesToProto(kTwo, message);
  message.set_unusable(std::string(1023, 'x') + "\u00e9");
  CHECK(DevicesFromProto(message)->unusable == std::string(1023, 'x') + "?");
  DevicesToProto({.gpus = {}, .unusable = "\xff"}, message);
  CHECK(message.unusable() == "?");
  message.mutable_gpus(1)->set_memory_bytes(-1);
  CHECK_STATUS(DevicesFromProto(message), absl::StatusCode::kInvalidArgument,
               "GPU 3 has -1 bytes of memory, 0 of them free, expected 0 or more");
  message.mutable_gpus(1)->set_index(0);
  CHECK_STATUS(DevicesFromProto(message), absl::StatusCode::kInvalidArgument,
               "a GPU's index is 0, expected 0 or more and each only once");
  message.mutable_gpus(1)->set_index(-4);
  CHECK_STATUS(DevicesFromProto(message), absl::StatusCode::kInvalidArgument, "index is -4");
  for (int i = 0; i < 63; ++i) message.add_gpus();
  CHECK_STATUS(DevicesFromProto(message), absl::StatusCode::kInvalidArgument,
               "65 GPUs, expected at most 64");
}

std::optional<DeviceNeed> NeedOf(const std::string& device, int gpus) {
  v1::Resources resources;
  resources.set_device(device);
  resources.set_gpus(gpus);
  return DeviceNeedOf(resources);
}

TEST_CASE("Device need: what a job says, and what it leaves out", "[common][devices]") {
  using Kind = DeviceNeed::Kind;
  CHECK(NeedOf("", 0) == DeviceNeed{.kind = Kind::kCpu});
  CHECK(NeedOf("cpu", 0) == DeviceNeed{.kind = Kind::kCpu});
  CHECK(NeedOf("", 2) == DeviceNeed{.kind = Kind::kGpu, .gpus = 2});
  CHECK(NeedOf("cuda", 0) == DeviceNeed{.kind = Kind::kGpu, .gpus = 1});
  CHECK(NeedOf("cuda", 8) == DeviceNeed{.kind = Kind::kGpu, .gpus = 8});
  CHECK(NeedOf("cuda:0", 0) == DeviceNeed{.kind = Kind::kGpu, .gpus = 1, .index = 0});
  CHECK(NeedOf("cuda:63", 1) == DeviceNeed{.kind = Kind::kGpu, .gpus = 1, .index = 63});
  CHECK(NeedOf("auto", 0) == DeviceNeed{.kind = Kind::kAny, .gpus = 1});
  CHECK(NeedOf("auto", 4) == DeviceNeed{.kind = Kind::kAny, .gpus = 4});
  for (const char* device : {"gpu", "CPU", "cuda:", "cuda:64", "cuda:-1", "cuda:+1", "cuda: 1",
                             "cuda:1x", "cuda0", "cuda:99999999999"}) {
    INFO(device);
    CHECK_FALSE(NeedOf(device, 0).has_value());
  }
}

}  // namespace
}  // namespace capstan::devices_codec_test
