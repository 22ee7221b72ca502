// MakeNcclCollective: makes a collective (kernels/collective.h) of this process's GPUs with NCCL.
// CudaBackend::Join calls it.
//
// There is one communicator per GPU. Every call is one NCCL group over all GPUs, so one thread can
// drive them all. The calls of a collective have the same order on every GPU.
//
// In Reduce each step of NCCL's ring or tree brings 4 * count bytes to the first GPU. Size, links
// and version decide whether NCCL uses a ring or a tree, and with it the order of its sums, which
// is the same on every run on the same machine. Thread safety: as Collective.
#ifndef CAPSTAN_KERNELS_CUDA_PLUGIN_NCCL_COLLECTIVE_H_
#define CAPSTAN_KERNELS_CUDA_PLUGIN_NCCL_COLLECTIVE_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/collective.h"
#include "kernels/cuda/plans/device.h"

namespace capstan::kernels::cuda {

// `devices` outlive the result. Errors: those of DeviceBackend::Join.
absl::StatusOr<std::unique_ptr<Collective>> MakeNcclCollective(std::vector<Device*> devices);

}  // namespace capstan::kernels::cuda

#endif  // CAPSTAN_KERNELS_CUDA_PLUGIN_NCCL_COLLECTIVE_H_
