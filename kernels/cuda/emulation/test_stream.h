// A stream with work that can be told apart, for tests of the runtime.
//
// Thread safety: thread-compatible.
#ifndef CAPSTAN_KERNELS_CUDA_EMULATION_TEST_STREAM_H_
#define CAPSTAN_KERNELS_CUDA_EMULATION_TEST_STREAM_H_

#include <cuda_runtime_api.h>

#include <catch2/catch.hpp>
#include <string>

#include "kernels/cuda/emulation/runtime.h"

namespace capstan::kernels::cuda::emulation {

// Of the device that was the thread's when it was made.
class TestStream {
 public:
  TestStream() {
    REQUIRE(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking) == cudaSuccess);
  }
  // Its work would outlive what it writes to.
  ~TestStream() {
    cudaStreamSynchronize(stream_);
    cudaStreamDestroy(stream_);
  }
  TestStream(const TestStream&) = delete;
  TestStream& operator=(const TestStream&) = delete;

  operator cudaStream_t() const { return stream_; }  // NOLINT: it stands for one.

  // Work that writes a letter into `log`.
  void Say(char letter, std::string& log) const {
    REQUIRE(Enqueue(stream_, [letter, &log] {
              log += letter;
              return cudaSuccess;
            }) == cudaSuccess);
  }
  void Fail(cudaError_t error) const {
    REQUIRE(Enqueue(stream_, [error] { return error; }) == cudaSuccess);
  }

 private:
  cudaStream_t stream_ = nullptr;
};

inline void* AllocateOnDevice(size_t bytes) {
  void* memory = nullptr;
  REQUIRE(cudaMalloc(&memory, bytes) == cudaSuccess);
  return memory;
}
inline void* AllocatePinned(size_t bytes) {
  void* memory = nullptr;
  REQUIRE(cudaMallocHost(&memory, bytes) == cudaSuccess);
  return memory;
}

}  // namespace capstan::kernels::cuda::emulation

#endif  // CAPSTAN_KERNELS_CUDA_EMULATION_TEST_STREAM_H_
