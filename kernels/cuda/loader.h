// OpenCudaBackend: the CUDA backend out of its plugin, libcapstan_cuda.so, so that a program
// neither links nor needs CUDA until it is told to use a GPU.
//
// The plugin is looked for at PluginSearch::path if given, else in $CAPSTAN_CUDA_PLUGIN if set,
// else beside the program (its folder, ../lib and, as Bazel builds it, ../kernels/cuda), else where
// the system's loader looks. It stays loaded until the process ends.
//
// Thread safety: thread-safe.
#ifndef CAPSTAN_KERNELS_CUDA_LOADER_H_
#define CAPSTAN_KERNELS_CUDA_LOADER_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/cuda_backend.h"

namespace capstan::kernels::cuda {

struct PluginSearch {
  std::string path;  // Of the plugin; empty: as above.
};

// Errors:
//   kNotFound             no plugin; lists where it was looked for and what the loader said.
//   kFailedPrecondition   the plugin is of another version, or no plugin at all; the driver is too
//                         old for the plugin's CUDA (both versions are named), or the card for its
//                         kernels.
//   kUnavailable          no CUDA driver, or no GPU.
//   kInvalidArgument      options.device is not one of the GPUs.
//   kResourceExhausted    the card has no memory for the context.
absl::StatusOr<std::unique_ptr<CudaBackend>> OpenCudaBackend(const CudaOptions& options = {},
                                                             const PluginSearch& search = {});

// Whether there is a plugin that OpenCudaBackend would use. Asks no driver and opens no GPU.
// Errors: kNotFound and kFailedPrecondition, as OpenCudaBackend, but for those of driver and card.
absl::Status CheckCudaPlugin(const PluginSearch& search = {});

}  // namespace capstan::kernels::cuda

#endif  // CAPSTAN_KERNELS_CUDA_LOADER_H_
