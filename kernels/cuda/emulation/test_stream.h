// TestStream: a stream for tests of the runtime. Its pieces of work write letters to a log.
//
// Thread safety: thread-compatible.
#ifndef CAPSTAN_KERNELS_CUDA_EMULATION_TEST_STREAM_H_
#define CAPSTAN_KERNELS_CUDA_EMULATION_TEST_STREAM_H_

#include <cuda_runtime_api.h>

#include <catch2/catch.hpp>
#include <string>

#include "kernels/cuda/emulation/runtime.h"

namespace capstan::kernels::cuda::emulation {

// The stream belongs to the device that was current when it was made.
class TestStream {
 public:
  TestStream() {
    REQUIRE(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking) == cudaSuccess);
  }
  // Waits, because the work would otherwise outlive the variables to which it writes.
  ~TestStream() {
    cudaStreamSynchronize(stream_);
    cudaStreamDestroy(stream_);
  }
  TestStream(const TestStream&) = delete;
  TestStream& operator=(const TestStream&) = delete;

  operator cudaStream_t() const { return stream_; }  // NOLINT: implicit, so that it acts as one.

  // Enqueues work that appends a letter to `log`.
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
