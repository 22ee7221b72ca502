// The emulated NCCL on three emulated GPUs: through the backend's table of its functions.
#include <cuda_runtime_api.h>
#include <nccl.h>

#include <array>
#include <catch2/catch.hpp>
#include <cstdint>
#include <vector>

#include "common/testing/status_matchers.h"
#include "kernels/cuda/emulation/device_values.h"
#include "kernels/cuda/nccl_library.h"

namespace capstan::kernels::cuda::emulation {
namespace {

constexpr int kMembers = 3;
constexpr size_t kCount = 5;

// Three GPUs with a stream and an array each: 1, 10 and 100 times 1, 2, 3...
class Members {
 public:
  Members() : nccl(*NcclLibrary::Load()) {
    for (int i = 0; i < kMembers; ++i) {
      const auto at = static_cast<size_t>(i);
      REQUIRE(cudaSetDevice(i) == cudaSuccess);
      REQUIRE(cudaStreamCreateWithFlags(&streams[at], cudaStreamNonBlocking) == cudaSuccess);
      void* memory = nullptr;
      REQUIRE(cudaMalloc(&memory, 4 * kCount) == cudaSuccess);
      arrays[at] = static_cast<float*>(memory);
      WriteAll(arrays[at], Numbers(at));
    }
    REQUIRE(nccl.comm_init_all(communicators.data(), kMembers, nullptr) == ncclSuccess);
    REQUIRE(cudaSetDevice(1) == cudaSuccess);
  }
  ~Members() {
    for (size_t i = 0; i < kMembers; ++i) {
      nccl.comm_destroy(communicators[i]);
      cudaStreamDestroy(streams[i]);
      cudaFree(arrays[i]);
    }
    cudaSetDevice(0);
  }
  Members(const Members&) = delete;
  Members& operator=(const Members&) = delete;

  static std::vector<float> Numbers(size_t i) {
    constexpr std::array<float, kMembers> kScales = {1, 10, 100};
    std::vector<float> numbers(kCount);
    for (size_t k = 0; k < kCount; ++k) numbers[k] = kScales[i] * static_cast<float>(k + 1);
    return numbers;
  }
  // What a member's array holds now, at `k`.
  float At(size_t i, size_t k) {
    REQUIRE(cudaSetDevice(static_cast<int>(i)) == cudaSuccess);
    const float value = Read(arrays[i] + k);
    REQUIRE(cudaSetDevice(1) == cudaSuccess);
    return value;
  }
  // Waits for a member, and overwrites its array.
  void Reuse(size_t i) {
    REQUIRE(cudaStreamSynchronize(streams[i]) == cudaSuccess);
    REQUIRE(cudaSetDevice(static_cast<int>(i)) == cudaSuccess);
    WriteAll(arrays[i], std::vector<float>(kCount, -1));
    REQUIRE(cudaSetDevice(1) == cudaSuccess);
  }

  ncclResult_t Reduce(size_t i, size_t count = kCount, int root = 0) {
    return nccl.reduce(arrays[i], arrays[i], count, ncclFloat32, ncclSum, root, communicators[i],
                       streams[i]);
  }
  ncclResult_t Broadcast(size_t i, int root = 0) {
    return nccl.broadcast(arrays[i], arrays[i], kCount, ncclFloat32, root, communicators[i],
                          streams[i]);
  }
  // All members' calls, as one group.
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

TEST_CASE("Emulated NCCL: sums to the root, which waits for the others", "[kernels][cuda]") {
  for (const size_t root : {0, 2}) {
    Members m;
    REQUIRE(m.Together([&](size_t i) { return m.Reduce(i, kCount, static_cast<int>(root)); }) ==
            ncclSuccess);
    CHECK(m.At(root, 1) == (root == 0 ? 2 : 200));  // Nobody waits.
    // A member that is done with its part has sent what it had then; the sum is not there yet.
    m.Reuse(1);
    CHECK(m.At(root, 1) == (root == 0 ? 2 : 200));
    REQUIRE(cudaStreamSynchronize(m.streams[root]) == cudaSuccess);
    CHECK(m.At(root, 1) == 222);
    CHECK(m.At(1, 1) == -1);
    CHECK(m.At(2 - root, 1) == (root == 0 ? 200 : 2));  // The others keep theirs.
  }
}

TEST_CASE("Emulated NCCL: broadcasts from the root, which does not wait for the others",
          "[kernels][cuda]") {
  Members m;
  REQUIRE(m.Together([&](size_t i) { return m.Broadcast(i, 2); }) == ncclSuccess);
  m.Reuse(2);
  CHECK(m.At(0, 1) == 2);
  for (const size_t i : {0, 1}) {
    REQUIRE(cudaStreamSynchronize(m.streams[i]) == cudaSuccess);
    CHECK(m.At(i, 1) == 200);
    CHECK(m.At(1, 1) == (i == 0 ? 20 : 200));
  }
}

TEST_CASE("Emulated NCCL: comes behind what every member has enqueued, in its order",
          "[kernels][cuda]") {
  Members m;
  const std::vector<float> last(kCount, 7);
  void* pinned = nullptr;
  REQUIRE(cudaMallocHost(&pinned, 4 * kCount) == cudaSuccess);
  std::copy(last.begin(), last.end(), static_cast<float*>(pinned));
  REQUIRE(cudaSetDevice(2) == cudaSuccess);
  REQUIRE(cudaMemcpyAsync(m.arrays[2], pinned, 4 * kCount, cudaMemcpyHostToDevice, m.streams[2]) ==
          cudaSuccess);
  // Two collectives in one group: the second one hands the first one's sums on.
  REQUIRE(m.nccl.group_start() == ncclSuccess);
  for (size_t i = 0; i < kMembers; ++i) {
    CHECK(m.Reduce(i) == ncclSuccess);
    CHECK(m.Broadcast(i) == ncclSuccess);
  }
  REQUIRE(m.nccl.group_end() == ncclSuccess);
  int device = -1;
  CHECK(cudaGetDevice(&device) == cudaSuccess);
  CHECK(device == 2);
  for (const cudaStream_t stream : m.streams) REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
  for (size_t i = 0; i < kMembers; ++i) CHECK(m.At(i, 4) == 5 + 50 + 7);
  cudaFreeHost(pinned);
}

TEST_CASE("Emulated NCCL: an aborted collective does nothing, and streams end", "[kernels][cuda]") {
  Members m;
  REQUIRE(m.Together([&](size_t i) { return m.Broadcast(i); }) == ncclSuccess);
  for (ncclComm_t& communicator : m.communicators) {
    CHECK(m.nccl.comm_abort(communicator) == ncclSuccess);
    communicator = nullptr;
  }
  for (const cudaStream_t stream : m.streams) CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
  CHECK(m.At(1, 0) == 10);
}

TEST_CASE("Emulated NCCL: memory that is not the member's fails the work, and is told",
          "[kernels][cuda]") {
  float host[kCount] = {};
  for (const bool on_host : {true, false}) {
    Members m;
    float* const wrong = on_host ? host : m.arrays[2];
    REQUIRE(m.Together([&](size_t i) {
      return m.nccl.reduce(i == 1 ? wrong : m.arrays[i], m.arrays[i], kCount, ncclFloat32, ncclSum,
                           0, m.communicators[i], m.streams[i]);
    }) == ncclSuccess);
    ncclResult_t error = ncclInProgress;
    CHECK(m.nccl.comm_get_async_error(m.communicators[1], &error) == ncclSuccess);
    CHECK(error == ncclSuccess);
    CHECK(cudaStreamSynchronize(m.streams[2]) == cudaSuccess);  // It has done its part.
    CHECK(cudaStreamSynchronize(m.streams[0]) == cudaErrorIllegalAddress);
    CHECK(m.nccl.comm_get_async_error(m.communicators[1], &error) == ncclSuccess);
    CHECK_STATUS(m.nccl.StatusOf(error, "reducing"), absl::StatusCode::kUnavailable,
                 "reducing: unhandled cuda error");
    for (const int device : {0, 1}) {  // Both would tell the error for ever.
      cudaSetDevice(device);
      cudaDeviceReset();
    }
  }
}

TEST_CASE("Emulated NCCL: refuses what would wait for ever, and wrong arguments",
          "[kernels][cuda]") {
  Members m;
  CHECK_STATUS(m.nccl.StatusOf(m.Reduce(0), "alone"), absl::StatusCode::kInvalidArgument,
               "would wait for ever");
  CHECK(m.Together([&](size_t i) { return m.Reduce(i, i == 1 ? 4 : 5); }) == ncclInvalidUsage);
  CHECK(m.Together([&](size_t i) { return i == 1 ? m.Broadcast(i) : m.Reduce(i); }) ==
        ncclInvalidUsage);
  CHECK(m.nccl.group_end() == ncclInvalidUsage);
  REQUIRE(m.nccl.group_start() == ncclSuccess);
  CHECK(m.Reduce(0, kCount, 3) == ncclInvalidArgument);
  CHECK(m.nccl.group_end() == ncclInvalidArgument);
  // Of another GPU's stream.
  CHECK(m.Together([&](size_t i) {
    return m.nccl.reduce(m.arrays[i], m.arrays[i], kCount, ncclFloat32, ncclSum, 0,
                         m.communicators[i], m.streams[0]);
  }) == ncclUnhandledCudaError);
  // A group that failed is over.
  CHECK(m.Together([&](size_t i) { return m.Reduce(i); }) == ncclSuccess);

  std::array<ncclComm_t, 2> made{};
  const std::array<int, 2> twice = {1, 1};
  const std::array<int, 2> beyond = {0, kMembers};
  CHECK(m.nccl.comm_init_all(made.data(), 2, twice.data()) == ncclInvalidUsage);
  CHECK(m.nccl.comm_init_all(made.data(), 2, beyond.data()) == ncclInvalidArgument);
  CHECK(m.nccl.comm_init_all(made.data(), 0, nullptr) == ncclInvalidArgument);
}

}  // namespace
}  // namespace capstan::kernels::cuda::emulation
