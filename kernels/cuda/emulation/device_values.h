// Read and Write: access the memory of an emulated GPU for tests. They act at once, before work
// that waits on the test's own streams.
//
// REQUIRES: the memory is that of the calling thread's current device. Thread safety: pure
// functions.
#ifndef CAPSTAN_KERNELS_CUDA_EMULATION_DEVICE_VALUES_H_
#define CAPSTAN_KERNELS_CUDA_EMULATION_DEVICE_VALUES_H_

#include <cuda_runtime_api.h>

#include <catch2/catch.hpp>
#include <cstddef>
#include <vector>

namespace capstan::kernels::cuda::emulation {

// Copies between device memory and pageable memory: such a copy is done when the call returns.
inline void CopyNow(void* to, const void* from, size_t bytes) {
  cudaStream_t stream = nullptr;
  REQUIRE(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
  REQUIRE(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream) == cudaSuccess);
  REQUIRE(cudaStreamDestroy(stream) == cudaSuccess);
}

template <typename T>
std::vector<T> ReadAll(const T* at, size_t count) {
  std::vector<T> values(count);
  CopyNow(values.data(), at, count * sizeof(T));
  return values;
}
template <typename T>
T Read(const T* at) {
  return ReadAll(at, 1)[0];
}

template <typename T>
void WriteAll(T* at, const std::vector<T>& values) {
  CopyNow(at, values.data(), values.size() * sizeof(T));
}
template <typename T>
void Write(T* at, T value) {
  CopyNow(at, &value, sizeof(T));
}

}  // namespace capstan::kernels::cuda::emulation

#endif  // CAPSTAN_KERNELS_CUDA_EMULATION_DEVICE_VALUES_H_
