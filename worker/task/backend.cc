#include "worker/task/backend.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/cpu/cpu_backend.h"

namespace capstan::worker {

std::string GpuBackendProblem() { return "this program has no CUDA backend"; }

absl::StatusOr<std::unique_ptr<kernels::Backend>> MakeBackend(const DeviceChoice& choice) {
  if (choice.gpus.empty()) return kernels::MakeCpuBackend({.threads = choice.threads});
  return absl::UnavailableError(absl::StrCat("GPU ", absl::StrJoin(choice.gpus, ", "),
                                             " cannot be opened: ", GpuBackendProblem()));
}

}  // namespace capstan::worker
