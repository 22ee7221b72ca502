#include "tests/gpu/gpu.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "kernels/cuda/loader.h"

namespace capstan::gpu {
namespace {

bool IsSet(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr && *value != 0;
}

const char* NameOf(kernels::cuda::Compute compute) {
  switch (compute) {
    case kernels::cuda::Compute::kFp32:
      return "fp32";
    case kernels::cuda::Compute::kTf32:
      return "tf32";
    case kernels::cuda::Compute::kBf16:
      return "bf16";
    case kernels::cuda::Compute::kFp16:
      return "fp16";
  }
  return "";
}

std::string Version(int cuda) { return absl::StrCat(cuda / 1000, ".", cuda % 1000 / 10); }

[[noreturn]] void Give(const absl::Status& status) {
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::abort();
}

char* AllocateOrAbort(kernels::cuda::CudaBackend& backend, int64_t bytes) {
  const absl::StatusOr<void*> memory = backend.TryAllocate(bytes);
  if (!memory.ok()) Give(memory.status());
  return static_cast<char*>(*memory);
}

}  // namespace

absl::StatusOr<std::unique_ptr<kernels::cuda::CudaBackend>> Open(kernels::cuda::Compute compute,
                                                                 kernels::cuda::PlanChoice choice) {
  const char* const plans = std::getenv("CAPSTAN_CUDA_PLANS");
  kernels::cuda::CudaOptions options = {
      .compute = compute, .plan_choice = choice, .plans_folder = plans == nullptr ? "" : plans};
  if (IsSmall()) options.warm_up_seconds = 0;
  return kernels::cuda::OpenCudaBackend(options);
}

bool IsRequired() { return IsSet("CAPSTAN_REQUIRE_GPU"); }
bool IsSmall() { return IsSet("CAPSTAN_GPU_SMALL"); }

bool IsWanted(kernels::cuda::Compute compute) {
  if (!IsSet("CAPSTAN_GPU_COMPUTES")) return true;
  const std::vector<std::string> names = absl::StrSplit(std::getenv("CAPSTAN_GPU_COMPUTES"), ',');
  return std::find(names.begin(), names.end(), NameOf(compute)) != names.end();
}

std::string Describe(const kernels::cuda::CudaDeviceInfo& info) {
  return absl::StrCat(info.name, " (", info.capability_major, ".", info.capability_minor,
                      "), driver ", Version(info.driver), ", CUDA ", Version(info.runtime),
                      ", cuDNN ", info.cudnn, ", cuBLASLt ", info.cublaslt);
}

Array::Array(kernels::cuda::CudaBackend& backend, int64_t bytes, int64_t skew)
    : backend_(backend),
      bytes_(bytes),
      skew_(skew),
      base_(AllocateOrAbort(backend, bytes + skew)) {}

Array::~Array() { backend_.Free(base_); }

void Array::Copy(void* to, const void* from) const {
  const absl::Status status = backend_.Copy(to, from, bytes_);
  if (!status.ok()) Give(status);
}

}  // namespace capstan::gpu
