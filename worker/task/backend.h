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

namespace capstan::worker {

struct DeviceChoice {
  std::vector<int> gpus;  // Indices as CUDA counts; empty: the CPU.
  int threads = 1;        // Of the CPU's arithmetic, >= 1.
};

// Errors: kUnavailable  the GPU cannot be used; says which and why.
absl::StatusOr<std::unique_ptr<kernels::Backend>> MakeBackend(const DeviceChoice& choice);

// Why MakeBackend makes none for any GPU, wherever it runs. Empty: it may make one.
std::string GpuBackendProblem();

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_TASK_BACKEND_H_
