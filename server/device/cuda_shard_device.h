// CudaShardDevice: a GPU as ShardDevice, through the plugin of kernels/cuda.
//
// Its kernels compile the update rules of the host (kernels/cuda/element_rules.h): the bits are the
// same. An update is three steps on three streams: the upload of the gradient, the rule, the
// download of the weights. Up to kSlots updates, of any shards, are in flight at a time; one more
// waits for the oldest. Threads copy and wait in parallel: if another process uses the card,
// everything in flight then runs in this process's next turn.
// Thread safety: thread-safe.
#ifndef CAPSTAN_SERVER_DEVICE_CUDA_SHARD_DEVICE_H_
#define CAPSTAN_SERVER_DEVICE_CUDA_SHARD_DEVICE_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/cuda/cuda_backend.h"
#include "server/device/shard_device.h"

namespace capstan::server {

// `name`: as Name(). Errors: those of the device.
absl::StatusOr<std::unique_ptr<ShardDevice>> MakeCudaShardDevice(
    std::string name, std::unique_ptr<kernels::cuda::CudaBackend> backend);

// Makes the device that --device names. Null for "cpu".
// Errors: kInvalidArgument     neither "cpu" nor "cuda" nor "cuda:<index>"; no such GPU.
//         kNotFound, kUnavailable, kFailedPrecondition  no plugin, driver, GPU, or too old ones: as
//         OpenCudaBackend says.
absl::StatusOr<std::unique_ptr<ShardDevice>> OpenShardDevice(absl::string_view device);

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_DEVICE_CUDA_SHARD_DEVICE_H_
