// Conversions of devices to and from protobuf, and of what a job says about them.
// Thread safety: pure functions.
#ifndef CAPSTAN_COMMON_DEVICES_DEVICES_CODEC_H_
#define CAPSTAN_COMMON_DEVICES_DEVICES_CODEC_H_

#include <optional>

#include "absl/status/statusor.h"
#include "common/devices/devices.h"
#include "proto/job.pb.h"
#include "proto/nodes.pb.h"

namespace capstan {

inline constexpr int kGpusPerWorkerMax = 64;

// Both cut text to 1 KiB of valid UTF-8.
void DevicesToProto(const Devices& devices, v1::Devices& out);
// Errors: kInvalidArgument  more than kGpusPerWorkerMax GPUs, an index that is negative or comes
//                           twice, or a negative size.
absl::StatusOr<Devices> DevicesFromProto(const v1::Devices& devices);

// Returns the need that resources.device and resources.gpus state, defaults included. Nothing if
// the device is given, but none of "auto", "cpu", "cuda" and "cuda:<index below
// kGpusPerWorkerMax>". With "cpu" or one named GPU, gpus is ignored: ValidateJob
// (common/job/validate/validate.h) checks that both fit each other.
std::optional<DeviceNeed> DeviceNeedOf(const v1::Resources& resources);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_DEVICES_DEVICES_CODEC_H_
