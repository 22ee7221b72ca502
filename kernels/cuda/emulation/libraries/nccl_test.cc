// Tests of the emulated NCCL on three emulated GPUs: which members wait, and which calls are
// refused. tests/gpu/collective_test.cc tests its results through the backend.
#include <cuda_runtime_api.h>
#include <nccl.h>

#include <array>
#include <catch2/catch.hpp>
#include <cstdint>
#include <vector>

#include "kernels/cuda/emulation/device_values.h"
#include "kernels/cuda/plugin/nccl_library.h"

namespace capstan::kernels::cuda::emulation::nccl_test {
namespace {

constexpr int kMembers = 3;
constexpr size_t kCount = 5;

// Three GPUs, each with a stream and an array; the arrays are full of 1, 10 and 100.
class Members {
 public:
  Members() : nccl(*NcclLibrary::Load()) {
    std::vector<int> devices;
    float value = 1;
    for (size_t i = 0; i < kMembers; ++i, value *= 10) {
      devices.push_back(static_cast<int>(i));
      REQUIRE(cudaSetDevice(devices[i]) == cudaSuccess);
      REQUIRE(cudaStreamCreateWithFlags(&streams[i], cudaStreamNonBlocking) == cudaSuccess);
      void* memory = nullptr;
      REQUIRE(cudaMalloc(&memory, 4 * kCount) == cudaSuccess);
      arrays[i] = static_cast<float*>(memory);
      WriteAll(arrays[i], std::vector<float>(kCount, value));
    }
    REQUIRE(nccl.comm_init_all(communicators.data(), kMembers, devices.data()) == ncclSuccess);
  }
  ~Members() {
    for (size_t i = 0; i < kMembers; ++i) {
      nccl.comm_destroy(communicators[i]);
      cudaStreamDestroy(streams[i]);
      cudaFree(arrays[i]);
    }
  }
  Members(const Members&) = delete;
  Members& operator=(const Members&) = delete;

  // Returns the first value of a member's array now.
  float At(size_t i) {
    REQUIRE(cudaSetDevice(static_cast<int>(i)) == cudaSuccess);
    return Read(arrays[i]);
  }
  // Waits for a member, and overwrites its array.
  void Reuse(size_t i) {
    REQUIRE(cudaStreamSynchronize(streams[i]) == cudaSuccess);
    REQUIRE(cudaSetDevice(static_cast<int>(i)) == cudaSuccess);
    WriteAll(arrays[i], std::vector<float>(kCount, -1));
  }

  ncclResult_t Reduce(size_t i, size_t count = kCount, int root = 0) {
    return nccl.reduce(arrays[i], arrays[i], count, ncclFloat32, ncclSum, root, communicators[i],
                       streams[i]);
  }
  ncclResult_t Broadcast(size_t i) {
    return nccl.broadcast(arrays[i], arrays[i], kCount, ncclFloat32, 0, communicators[i],
                          streams[i]);
  }
  // Makes the calls of all members, as one group.
  template <typename Call>
  ncclResult_t Together(const Call& call) {
    REQUIRE(nccl.group_start() == ncclSuccess);
    for (size_t i = 0; i < kMembers; ++i) CHECK(call(i) == ncclSuccess);
    return nccl.group_end();
  }

  NcclLibrary nccl;
  std::array<cudaStream_t, kMembers> streams{};
  std::array<float*, kMembers> arrays{};
  std::array<ncclComm_t, kMembers> communicators{};
};

TEST_CASE("Emulated NCCL: only members that receive wait for those that send", "[kernels][cuda]") {
  Members m;
  REQUIRE(m.Together([&](size_t i) { return m.Reduce(i); }) == ncclSuccess);
  CHECK(m.At(0) == 1);
  m.Reuse(1);  // It has already sent its values.
  CHECK(m.At(0) == 1);
  REQUIRE(cudaStreamSynchronize(m.streams[0]) == cudaSuccess);
  CHECK(m.At(0) == 111);
  CHECK(m.At(1) == -1);
  CHECK(m.At(2) == 100);

  REQUIRE(m.Together([&](size_t i) { return m.Broadcast(i); }) == ncclSuccess);
  m.Reuse(0);
  CHECK(m.At(1) == -1);
  for (const size_t i : {1, 2}) REQUIRE(cudaStreamSynchronize(m.streams[i]) == cudaSuccess);
  CHECK(m.At(1) == 111);
  CHECK(m.At(2) == 111);
}

TEST_CASE("Emulated NCCL: an aborted call does nothing, and streams end", "[kernels][cuda]") {
  Members m;
  REQUIRE(m.Together([&](size_t i) { return m.Broadcast(i); }) == ncclSuccess);
  for (ncclComm_t& communicator : m.communicators) {
    CHECK(m.nccl.comm_abort(communicator) == ncclSuccess);
    communicator = nullptr;
  }
  for (const cudaStream_t stream : m.streams) CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
  CHECK(m.At(1) == 10);
}

TEST_CASE("Emulated NCCL: memory that is not the member's fails the work, and is told",
          "[kernels][cuda]") {
  Members m;
  REQUIRE(m.Together([&](size_t i) {
    return m.nccl.reduce(m.arrays[i == 1 ? 2 : i], m.arrays[i], kCount, ncclFloat32, ncclSum, 0,
                         m.communicators[i], m.streams[i]);
  }) == ncclSuccess);
  ncclResult_t error = ncclInProgress;
  CHECK(m.nccl.comm_get_async_error(m.communicators[1], &error) == ncclSuccess);
  CHECK(error == ncclSuccess);
  CHECK(cudaStreamSynchronize(m.streams[2]) == cudaSuccess);  // It has done its part.
  CHECK(cudaStreamSynchronize(m.streams[0]) == cudaErrorIllegalAddress);
  CHECK(m.nccl.comm_get_async_error(m.communicators[1], &error) == ncclSuccess);
  CHECK(error == ncclUnhandledCudaError);
  for (const int device : {0, 1}) {  // Otherwise both keep the error.
    cudaSetDevice(device);
    cudaDeviceReset();
  }
}

TEST_CASE("Emulated NCCL: refuses what would wait for ever, and what nobody asks for",
          "[kernels][cuda]") {
  Members m;
  CHECK(m.Reduce(0) == ncclInvalidUsage);  // No group is open.
  CHECK(m.Together([&](size_t i) { return m.Reduce(i, i == 1 ? 4 : 5); }) == ncclInvalidUsage);
  CHECK(m.Together([&](size_t i) { return i == 1 ? m.Broadcast(i) : m.Reduce(i); }) ==
        ncclInvalidUsage);
  REQUIRE(m.nccl.group_start() == ncclSuccess);
  CHECK(m.Reduce(0, kCount, 1) == ncclInvalidUsage);
  CHECK(m.Reduce(0) == ncclSuccess);
  CHECK(m.nccl.group_end() == ncclInvalidUsage);  // The others are missing.
  // A stream belongs to another GPU.
  CHECK(m.Together([&](size_t i) {
    return m.nccl.reduce(m.arrays[i], m.arrays[i], kCount, ncclFloat32, ncclSum, 0,
                         m.communicators[i], m.streams[0]);
  }) == ncclUnhandledCudaError);
  // A failed group does not affect the next one.
  CHECK(m.Together([&](size_t i) { return m.Reduce(i); }) == ncclSuccess);
}

}  // namespace
}  // namespace capstan::kernels::cuda::emulation::nccl_test
