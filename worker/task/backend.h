// MakeBackend: what a task computes with: the CPU, or the GPU that the scheduler gave it.
//
// The one place where a task's device becomes a kernels::Backend.
// Thread safety: functions.
#ifndef CAPSTAN_WORKER_TASK_BACKEND_H_
#define CAPSTAN_WORKER_TASK_BACKEND_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/cuda/cuda_backend.h"
#include "proto/job.pb.h"

namespace capstan::worker {

struct DeviceChoice {
  std::vector<int> gpus;            // Indices as CUDA counts; empty: the CPU.
  int threads = 1;                  // Of the CPU's arithmetic, >= 1.
  kernels::cuda::CudaOptions cuda;  // Of the GPU, but for `device`.
};

// As the job asks. Under BSP every run has the same bits, so GPUs take the libraries' first plans;
// else they measure which are fastest.
DeviceChoice DeviceChoiceOf(const v1::JobSpec& job, std::vector<int> gpus);

// Errors: kUnavailable        the GPU cannot be used; says which and why.
//         kUnimplemented      more than one GPU.
//         kResourceExhausted  the GPU has no memory for its context.
absl::StatusOr<std::unique_ptr<kernels::Backend>> MakeBackend(const DeviceChoice& choice);

// Why MakeBackend makes none for any GPU, wherever it runs: there is no plugin that it could use.
// Loads the plugin, and with it CUDA's libraries. Empty: it may make one.
std::string GpuBackendProblem();

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_TASK_BACKEND_H_
