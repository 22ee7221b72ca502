// MakeCudaBackend: makes the CUDA backend, inside the plugin. CapstanCudaOpen (plugin.cc) calls it.
//
// Thread safety: as Backend.
#ifndef CAPSTAN_KERNELS_CUDA_PLUGIN_BACKEND_IMPL_H_
#define CAPSTAN_KERNELS_CUDA_PLUGIN_BACKEND_IMPL_H_

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/cuda/cuda_backend.h"

namespace capstan::kernels::cuda {

// Errors: those of OpenCudaBackend (loader.h), except those of the plugin's file.
absl::StatusOr<std::unique_ptr<CudaBackend>> MakeCudaBackend(const CudaOptions& options);

}  // namespace capstan::kernels::cuda

#endif  // CAPSTAN_KERNELS_CUDA_PLUGIN_BACKEND_IMPL_H_
