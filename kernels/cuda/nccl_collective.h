// MakeNcclCollective: GPUs of one process that work together by NCCL (kernels/collective.h).
//
// One communicator a GPU, all of them this process's; every call is one group over all GPUs, so
// that one thread drives them all. All calls of a collective are in one order on every GPU.
//
// Reduce: what the first GPU gets is 4 * count bytes a step of NCCL's ring or tree; which of them
// NCCL takes depends on size, links and version, and with that the order of its sums: the same
// on every run on the same machine. Thread safety: as Collective.
#ifndef CAPSTAN_KERNELS_CUDA_NCCL_COLLECTIVE_H_
#define CAPSTAN_KERNELS_CUDA_NCCL_COLLECTIVE_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/collective.h"
#include "kernels/cuda/device.h"

namespace capstan::kernels::cuda {

// `devices` outlive the result. Errors: those of DeviceBackend::Join.
absl::StatusOr<std::unique_ptr<Collective>> MakeNcclCollective(std::vector<Device*> devices);

}  // namespace capstan::kernels::cuda

#endif  // CAPSTAN_KERNELS_CUDA_NCCL_COLLECTIVE_H_
