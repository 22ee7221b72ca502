// What lies in an emulated GPU's memory, for tests: read and written at once, past all that waits
// on the test's own streams.
//
// REQUIRES: the memory is the device's that is the calling thread's. Thread safety: pure functions.
#ifndef CAPSTAN_KERNELS_CUDA_EMULATION_DEVICE_VALUES_H_
#define CAPSTAN_KERNELS_CUDA_EMULATION_DEVICE_VALUES_H_

#include <cuda_runtime_api.h>

#include <catch2/catch.hpp>
#include <cstddef>
#include <vector>

namespace capstan::kernels::cuda::emulation {

// From or to pageable memory, which a copy is done with when it returns.
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
