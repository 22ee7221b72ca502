// OpenCudaBackend: loads the CUDA backend from its plugin, libcapstan_cuda.so, so that a program
// neither links nor needs CUDA until it is told to use a GPU.
//
// It looks for the plugin at PluginSearch::path if given, else at $CAPSTAN_CUDA_PLUGIN if set,
// else beside the program (its folder, ../lib and, as Bazel builds it, ../kernels/cuda), else where
// the system's loader looks. The plugin stays loaded until the process ends.
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
  std::string path;  // The plugin's file; empty: search as described above.
};

// Errors:
//   kNotFound             no plugin; the message lists the places and what the loader said.
//   kFailedPrecondition   the plugin has another version, or the file is not a Capstan plugin; the
//                         driver is too old for the plugin's CUDA (the message names both
//                         versions), or the card is too old for its kernels.
//   kUnavailable          no CUDA driver, or no GPU.
//   kInvalidArgument      options.device is not one of the GPUs, or workspace_bytes_max < 0.
//   kResourceExhausted    the card has not enough memory for the context.
absl::StatusOr<std::unique_ptr<CudaBackend>> OpenCudaBackend(const CudaOptions& options = {},
                                                             const PluginSearch& search = {});

// Checks that there is a plugin that OpenCudaBackend would use. Asks no driver and opens no GPU.
// Errors: kNotFound and kFailedPrecondition as OpenCudaBackend, except those of driver and card.
absl::Status CheckCudaPlugin(const PluginSearch& search = {});

}  // namespace capstan::kernels::cuda

#endif  // CAPSTAN_KERNELS_CUDA_LOADER_H_
