#include "tests/gpu/gpu.h"

#include <cstdio>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/loader.h"

namespace capstan::gpu {
namespace {

bool IsSet(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr && *value != 0;
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
  return kernels::cuda::OpenCudaBackend({.compute = compute, .plan_choice = choice});
}

bool IsRequired() { return IsSet("CAPSTAN_REQUIRE_GPU"); }
bool IsSmall() { return IsSet("CAPSTAN_GPU_SMALL"); }

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
