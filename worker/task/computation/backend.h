// MakeBackends: makes the backends of a task: the CPU, or the GPUs that the scheduler gave it.
//
// This is the only place that makes a kernels::BackendGroup from a task's devices.
// Thread safety: functions.
#ifndef CAPSTAN_WORKER_TASK_COMPUTATION_BACKEND_H_
#define CAPSTAN_WORKER_TASK_COMPUTATION_BACKEND_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/backend_group.h"
#include "kernels/cuda/cuda_backend.h"
#include "proto/job.pb.h"

namespace capstan::worker {

struct DeviceChoice {
  std::vector<int> gpus;            // CUDA's indices; empty: the CPU.
  int threads = 1;                  // Threads of the CPU's arithmetic, >= 1.
  kernels::cuda::CudaOptions cuda;  // The options of each GPU, except for `device`.
};

// The choice that the job asks for. Under BSP every run must give the same bits, so GPUs take the
// libraries' first plans; otherwise they measure which plans are fastest, and keep the result in
// the folder $CAPSTAN_CUDA_PLANS, if set.
DeviceChoice DeviceChoiceOf(const v1::JobSpec& job, std::vector<int> gpus);

// The GPUs for a trainer that runs the job without servers: the one that the job names, or the
// first ones, as many as a task gets. Empty: the job asks for none.
std::vector<int> GpusAsked(const v1::Resources& resources);

// Errors: kUnavailable        GPUs cannot be used, or do not work together; says why the first one
//                             cannot, and names all that cannot (lost_gpus.h).
//         kResourceExhausted  a GPU has no memory for its context.
absl::StatusOr<kernels::BackendGroup> MakeBackends(const DeviceChoice& choice);

// The reason why MakeBackends cannot make a backend for any GPU: there is no plugin that it could
// use. Loads the plugin, and with it CUDA's libraries. Empty: it may be able to.
std::string GpuBackendProblem();

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_TASK_COMPUTATION_BACKEND_H_
