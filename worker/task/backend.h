// MakeBackends: what a task computes with: the CPU, or the GPUs that the scheduler gave it.
//
// The one place where a task's devices become a kernels::BackendGroup.
// Thread safety: functions.
#ifndef CAPSTAN_WORKER_TASK_BACKEND_H_
#define CAPSTAN_WORKER_TASK_BACKEND_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/backend_group.h"
#include "kernels/cuda/cuda_backend.h"
#include "proto/job.pb.h"

namespace capstan::worker {

struct DeviceChoice {
  std::vector<int> gpus;            // Indices as CUDA counts; empty: the CPU.
  int threads = 1;                  // Of the CPU's arithmetic, >= 1.
  kernels::cuda::CudaOptions cuda;  // Of each GPU, but for `device`.
};

// As the job asks. Under BSP every run has the same bits, so GPUs take the libraries' first plans;
// else they measure which are fastest, and keep that in the folder $CAPSTAN_CUDA_PLANS, if set.
DeviceChoice DeviceChoiceOf(const v1::JobSpec& job, std::vector<int> gpus);

// The GPUs of which a job's own trainer, without servers, is to be given as many as a task gets:
// one that it names, or the first ones. Empty: it asks for none.
std::vector<int> GpusAsked(const v1::Resources& resources);

// Errors: kUnavailable        GPUs cannot be used, or do not work together; says why of the first,
//                             and names all that cannot (lost_gpus.h).
//         kResourceExhausted  a GPU has no memory for its context.
absl::StatusOr<kernels::BackendGroup> MakeBackends(const DeviceChoice& choice);

// Why MakeBackends makes none for any GPU, wherever it runs: there is no plugin that it could use.
// Loads the plugin, and with it CUDA's libraries. Empty: it may make one.
std::string GpuBackendProblem();

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_TASK_BACKEND_H_
