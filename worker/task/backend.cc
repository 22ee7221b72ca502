#include "worker/task/backend.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cuda/loader.h"

namespace capstan::worker {
namespace {

kernels::cuda::Compute ComputeOf(v1::Training::Compute compute) {
  switch (compute) {
    case v1::Training::TF32:
      return kernels::cuda::Compute::kTf32;
    case v1::Training::BF16:
      return kernels::cuda::Compute::kBf16;
    case v1::Training::FP16:
      return kernels::cuda::Compute::kFp16;
    default:
      return kernels::cuda::Compute::kFp32;
  }
}

}  // namespace

DeviceChoice DeviceChoiceOf(const v1::JobSpec& job, std::vector<int> gpus) {
  const bool bsp = !job.consistency().has_ssp() && !job.consistency().has_asp();
  DeviceChoice choice;
  choice.gpus = std::move(gpus);
  choice.threads = job.resources().has_threads() ? job.resources().threads() : 1;
  choice.cuda.compute = ComputeOf(job.training().compute());
  choice.cuda.plan_choice =
      bsp ? kernels::cuda::PlanChoice::kHeuristic : kernels::cuda::PlanChoice::kMeasured;
  return choice;
}

std::string GpuBackendProblem() { return std::string(kernels::cuda::CheckCudaPlugin().message()); }

absl::StatusOr<std::unique_ptr<kernels::Backend>> MakeBackend(const DeviceChoice& choice) {
  if (choice.gpus.empty()) return kernels::MakeCpuBackend({.threads = choice.threads});
  if (choice.gpus.size() > 1) {
    return absl::UnimplementedError(absl::StrCat("the task was given GPUs ",
                                                 absl::StrJoin(choice.gpus, ", "),
                                                 ", expected one: take resources.gpus: 1"));
  }
  kernels::cuda::CudaOptions options = choice.cuda;
  options.device = choice.gpus[0];
  absl::StatusOr<std::unique_ptr<kernels::cuda::CudaBackend>> opened =
      kernels::cuda::OpenCudaBackend(options);
  if (opened.ok()) return std::unique_ptr<kernels::Backend>(*std::move(opened));
  const std::string message =
      absl::StrCat("GPU ", options.device, " cannot be opened: ", opened.status().message());
  // Whatever this machine lacks, another one may have.
  return absl::IsResourceExhausted(opened.status()) ? absl::ResourceExhaustedError(message)
                                                    : absl::UnavailableError(message);
}

}  // namespace capstan::worker
