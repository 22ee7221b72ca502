#include "common/devices/devices_codec.h"

#include <algorithm>
#include <set>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "common/observability/utf8.h"

namespace capstan {
namespace {

constexpr size_t kTextBytesMax = 1024;

std::string Text(std::string_view text) { return ToValidUtf8(text.substr(0, kTextBytesMax)); }

// Parses "7" as 7; returns nothing for a text that is no index of a GPU.
std::optional<int> ParseIndex(absl::string_view text) {
  int index = 0;
  const bool digits = !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return absl::ascii_isdigit(c);
  });
  if (!digits || !absl::SimpleAtoi(text, &index) || index >= kGpusPerWorkerMax) return std::nullopt;
  return index;
}

}  // namespace

void DevicesToProto(const Devices& devices, v1::Devices& out) {
  for (const Gpu& gpu : devices.gpus) {
    v1::Gpu& g = *out.add_gpus();
    g.set_index(gpu.index);
    g.set_name(Text(gpu.name));
    g.set_memory_bytes(gpu.memory_bytes);
    g.set_memory_free_bytes(gpu.memory_free_bytes);
    g.set_compute_capability(Text(gpu.compute_capability));
  }
  out.set_driver_version(Text(devices.driver_version));
  out.set_cuda_version(Text(devices.cuda_version));
  out.set_unusable(Text(devices.unusable));
}

absl::StatusOr<Devices> DevicesFromProto(const v1::Devices& devices) {
  if (devices.gpus_size() > kGpusPerWorkerMax) {
    return absl::InvalidArgumentError(absl::StrCat("devices: ", devices.gpus_size(),
                                                   " GPUs, expected at most ", kGpusPerWorkerMax));
  }
  Devices decoded{.gpus = {},
                  .driver_version = Text(devices.driver_version()),
                  .cuda_version = Text(devices.cuda_version()),
                  .unusable = Text(devices.unusable())};
  std::set<int> indices;
  for (const v1::Gpu& gpu : devices.gpus()) {
    if (gpu.index() < 0 || !indices.insert(gpu.index()).second) {
      return absl::InvalidArgumentError(absl::StrCat("devices: a GPU's index is ", gpu.index(),
                                                     ", expected 0 or more and each only once"));
    }
    if (gpu.memory_bytes() < 0 || gpu.memory_free_bytes() < 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          "devices: GPU ", gpu.index(), " has ", gpu.memory_bytes(), " bytes of memory, ",
          gpu.memory_free_bytes(), " of them free, expected 0 or more"));
    }
    decoded.gpus.push_back({.index = gpu.index(),
                            .name = Text(gpu.name()),
                            .memory_bytes = gpu.memory_bytes(),
                            .memory_free_bytes = gpu.memory_free_bytes(),
                            .compute_capability = Text(gpu.compute_capability())});
  }
  return decoded;
}

std::optional<DeviceNeed> DeviceNeedOf(const v1::Resources& resources) {
  const std::string& device = resources.device();
  const int gpus = std::max(1, resources.gpus());
  if (device == "cpu" || (device.empty() && resources.gpus() == 0)) return DeviceNeed();
  if (device == "auto") return DeviceNeed{.kind = DeviceNeed::Kind::kAny, .gpus = gpus};
  if (device.empty() || device == "cuda") {
    return DeviceNeed{.kind = DeviceNeed::Kind::kGpu, .gpus = gpus};
  }
  absl::string_view index_text = device;
  if (!absl::ConsumePrefix(&index_text, "cuda:")) return std::nullopt;
  const std::optional<int> index = ParseIndex(index_text);
  if (!index) return std::nullopt;
  return DeviceNeed{.kind = DeviceNeed::Kind::kGpu, .gpus = 1, .index = *index};
}

}  // namespace capstan
