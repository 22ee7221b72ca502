// The GPU that a test or benchmark runs on, and arrays in its memory.
//
// Thread safety: used by one thread.
#ifndef CAPSTAN_TESTS_GPU_GPU_H_
#define CAPSTAN_TESTS_GPU_GPU_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/cuda_backend.h"

namespace capstan::gpu {

// The GPU that CAPSTAN_CUDA_PLUGIN and CUDA_VISIBLE_DEVICES lead to. Plans that are measured are
// kept in the folder CAPSTAN_CUDA_PLANS, if that is set.
absl::StatusOr<std::unique_ptr<kernels::cuda::CudaBackend>> Open(
    kernels::cuda::Compute compute,
    kernels::cuda::PlanChoice choice = kernels::cuda::PlanChoice::kHeuristic);

// Returns whether a machine without a GPU is an error: CAPSTAN_REQUIRE_GPU is set.
bool IsRequired();

// Returns whether only small sizes are wanted: CAPSTAN_GPU_SMALL is set, for compute-sanitizer.
bool IsSmall();

// Returns whether this mode is wanted: CAPSTAN_GPU_COMPUTES is not set, or names it ("fp32,bf16").
bool IsWanted(kernels::cuda::Compute compute);

// "NVIDIA H100 80GB HBM3 (9.0), driver 13.0, CUDA 13.0, cuDNN 91900, cuBLASLt 130000".
std::string Describe(const kernels::cuda::CudaDeviceInfo& info);

// `bytes` of the GPU's memory, `skew` bytes behind an aligned address.
class Array {
 public:
  // REQUIRES: there is memory for it (exits otherwise: a test has nothing better to do).
  Array(kernels::cuda::CudaBackend& backend, int64_t bytes, int64_t skew = 0);
  ~Array();
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;

  void* data() const { return base_ + skew_; }
  int64_t bytes() const { return bytes_; }
  void Upload(const void* from) { Copy(data(), from); }
  void Download(void* to) const { Copy(to, data()); }

 private:
  void Copy(void* to, const void* from) const;

  kernels::cuda::CudaBackend& backend_;
  const int64_t bytes_;
  const int64_t skew_;
  char* const base_;
};

}  // namespace capstan::gpu

#endif  // CAPSTAN_TESTS_GPU_GPU_H_
