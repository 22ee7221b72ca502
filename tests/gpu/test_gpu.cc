#include "tests/gpu/test_gpu.h"

#include <array>
#include <catch2/catch.hpp>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>

#include "tests/gpu/gpu.h"

namespace capstan::gpu {
namespace {

using Opened = absl::StatusOr<std::unique_ptr<kernels::cuda::CudaBackend>>;

}  // namespace

kernels::cuda::CudaBackend* TestGpu(kernels::cuda::Compute compute) {
  // Indexed by Compute. They are never closed: at exit cuDNN's own statics may be gone before ours,
  // and since 9.10 destroying a plan crashes then.
  static auto& gpus = *new std::array<std::optional<Opened>, 4>;
  static bool told = false;
  std::optional<Opened>& gpu = gpus[static_cast<size_t>(compute)];
  if (!gpu.has_value()) gpu = Open(compute);
  if (gpu->ok()) return gpu->value().get();
  const std::string why = gpu->status().ToString();
  if (IsRequired()) FAIL("a GPU is required: " << why);
  if (!told) std::printf("SKIPPED: %s\n", why.c_str());
  told = true;
  return nullptr;
}

}  // namespace capstan::gpu
