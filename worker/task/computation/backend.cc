#include "worker/task/computation/backend.h"

#include <cstdlib>
#include <memory>
#include <numeric>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/devices/devices_codec.h"
#include "common/job/spec/consistency_of.h"
#include "common/observability/log.h"
#include "common/status/status_macros.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cuda/loader.h"
#include "kernels/device_backend.h"
#include "worker/task/computation/lost_gpus.h"

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

// Turns an error, unless memory is short, into kUnavailable: another machine may do better.
absl::Status OnThisMachine(const absl::Status& status, const std::string& what) {
  const std::string message = absl::StrCat(what, ": ", status.message());
  return absl::IsResourceExhausted(status) ? absl::ResourceExhaustedError(message)
                                           : absl::UnavailableError(message);
}

// Opens all GPUs of a choice. If one cannot be opened the others are tried all the same, so that
// the error names all unusable GPUs and the next attempt can avoid them.
absl::StatusOr<std::vector<std::unique_ptr<kernels::DeviceBackend>>> OpenAll(
    const DeviceChoice& choice) {
  std::vector<std::unique_ptr<kernels::DeviceBackend>> gpus;
  std::vector<int> unusable;
  absl::Status first;
  for (const int index : choice.gpus) {
    kernels::cuda::CudaOptions options = choice.cuda;
    options.device = index;
    absl::StatusOr<std::unique_ptr<kernels::cuda::CudaBackend>> opened =
        kernels::cuda::OpenCudaBackend(options);
    if (opened.ok()) {
      gpus.push_back(*std::move(opened));
      continue;
    }
    unusable.push_back(index);
    first.Update(OnThisMachine(opened.status(), absl::StrCat("GPU ", index, " cannot be opened")));
  }
  if (!first.ok()) return WithLostGpus(first, unusable);
  return gpus;
}

}  // namespace

DeviceChoice DeviceChoiceOf(const v1::JobSpec& job, std::vector<int> gpus) {
  const bool bsp = ConsistencyOf(job).synchronous();
  DeviceChoice choice;
  choice.gpus = std::move(gpus);
  choice.threads = job.resources().has_threads() ? job.resources().threads() : 1;
  choice.cuda.compute = ComputeOf(job.training().compute());
  const char* const plans = std::getenv("CAPSTAN_CUDA_PLANS");
  if (plans != nullptr) choice.cuda.plans_folder = plans;
  choice.cuda.say = [](const std::string& text) { LogInfo({}, "{}", text); };
  choice.cuda.plan_choice =
      bsp ? kernels::cuda::PlanChoice::kHeuristic : kernels::cuda::PlanChoice::kMeasured;
  return choice;
}

std::vector<int> GpusAsked(const v1::Resources& resources) {
  const DeviceNeed need = DeviceNeedOf(resources).value_or(DeviceNeed());
  if (need.kind != DeviceNeed::Kind::kGpu) return {};
  if (need.index >= 0) return {need.index};
  std::vector<int> gpus(static_cast<size_t>(need.gpus));
  std::iota(gpus.begin(), gpus.end(), 0);
  return gpus;
}

std::string GpuBackendProblem() { return std::string(kernels::cuda::CheckCudaPlugin().message()); }

absl::StatusOr<kernels::BackendGroup> MakeBackends(const DeviceChoice& choice) {
  if (choice.gpus.empty()) {
    return kernels::BackendGroup(kernels::MakeCpuBackend({.threads = choice.threads}));
  }
  CAPSTAN_ASSIGN_OR_RETURN(std::vector<std::unique_ptr<kernels::DeviceBackend>> gpus,
                           OpenAll(choice));
  if (gpus.size() == 1) return kernels::BackendGroup(std::move(gpus[0]));
  absl::StatusOr<kernels::BackendGroup> joined = kernels::BackendGroup::Join(std::move(gpus));
  if (joined.ok()) return joined;
  return OnThisMachine(joined.status(), absl::StrCat("GPUs ", absl::StrJoin(choice.gpus, ", "),
                                                     " cannot be joined"));
}

}  // namespace capstan::worker
