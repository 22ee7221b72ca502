// Tests of counting without computing: launches, and bytes that kernels read and write.
#include "kernels/cuda/emulation/counts.h"

#include <stdlib.h>

#include <catch2/catch.hpp>
#include <cstdint>
#include <string>

#include "kernels/cuda/emulation/grid/device_code.h"
#include "kernels/cuda/emulation/test_stream.h"

namespace capstan::kernels::cuda::counts_test {
namespace {

using emulation::AllocateOnDevice;
using emulation::Counts;
using emulation::TestStream;

constexpr unsigned kThreads = 256;
constexpr uint64_t kMiB = 1 << 20;
constexpr double kTolerance = 0.04;  // One page more for 32 neighbouring pages.

// Sets the file of counts before the emulation reads the variable.
[[maybe_unused]] const int kIsSet = [] {
  const char* const folder = getenv("TEST_TMPDIR");
  const std::string path = std::string(folder == nullptr ? "/tmp" : folder) + "/counts";
  return setenv("CAPSTAN_EMULATED_COUNTS", path.c_str(), 1);
}();

// Returns the counts for the work that `work` enqueues.
template <typename Work>
Counts CountsOf(const TestStream& stream, const Work& work) {
  REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
  const Counts before = *emulation::CountsOrNull();
  work();
  REQUIRE(cudaGetLastError() == cudaSuccess);
  REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
  const Counts after = *emulation::CountsOrNull();
  return {after.kernels - before.kernels, after.graphs - before.graphs, after.bytes - before.bytes};
}

// The element of the calling thread.
int64_t Place() {
  return int64_t{kThreads} * (blockIdx.x + int64_t{gridDim.x} * blockIdx.y) + threadIdx.x;
}
void CopyKernel(const float* from, float* to) { to[Place()] = from[Place()]; }
// Adds a table, which all blocks read, to `values` in place.
void AddKernel(const float* table, float* values) { values[Place()] += table[threadIdx.x % 64]; }

TEST_CASE("Emulated counts: a small grid runs as a whole, and its pages count",
          "[kernels][cuda][emulation]") {
  constexpr uint64_t kBytes = kMiB / 2;
  const TestStream stream;
  auto* const from = static_cast<float*>(AllocateOnDevice(kBytes));
  auto* const to = static_cast<float*>(AllocateOnDevice(kBytes));
  const Counts counts = CountsOf(stream, [&] {
    emulation::Launch(CopyKernel, dim3(kBytes / 1024), dim3(kThreads), stream, from, to);
  });
  CHECK(counts.kernels == 1);
  CHECK(counts.graphs == 0);
  CHECK(counts.bytes >= 2 * kBytes);
  CHECK(counts.bytes <= 2 * kBytes + 2 * 4096);
  cudaFree(from);
  cudaFree(to);
}

TEST_CASE("Emulated counts: of a large grid some blocks stand for all",
          "[kernels][cuda][emulation]") {
  constexpr uint64_t kBytes = 1024 * kMiB;
  const TestStream stream;
  auto* const from = static_cast<float*>(AllocateOnDevice(kBytes));
  auto* const to = static_cast<float*>(AllocateOnDevice(kBytes));
  const auto bytes = [&](auto* kernel, dim3 grid) {
    const Counts counts = CountsOf(
        stream, [&] { emulation::Launch(kernel, grid, dim3(kThreads), stream, from, to); });
    CHECK(counts.kernels == 1);
    return static_cast<double>(counts.bytes);
  };
  const dim3 line(kBytes / 1024), area(256, kBytes / 1024 / 256);
  for (const dim3 grid : {line, area}) {
    CHECK(bytes(CopyKernel, grid) == Approx(2.0 * kBytes).epsilon(kTolerance));
    CHECK(bytes(AddKernel, grid) == Approx(2.0 * kBytes).epsilon(kTolerance));
  }
  cudaFree(from);
  cudaFree(to);
}

TEST_CASE("Emulated counts: copies, memsets, and graphs by what they launch",
          "[kernels][cuda][emulation]") {
  const TestStream stream;
  auto* const from = static_cast<float*>(AllocateOnDevice(kMiB));
  auto* const to = static_cast<float*>(AllocateOnDevice(kMiB));
  void* const pinned = emulation::AllocatePinned(kMiB);
  const auto copy = [&](void* target, const void* source) {
    const Counts counts = CountsOf(stream, [&] {
      REQUIRE(cudaMemcpyAsync(target, source, kMiB, cudaMemcpyDefault, stream) == cudaSuccess);
    });
    CHECK(counts.kernels == 0);
    return counts.bytes;
  };
  CHECK(copy(to, from) == 2 * kMiB);
  CHECK(copy(to, pinned) == kMiB);
  CHECK(copy(pinned, from) == kMiB);

  REQUIRE(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
  emulation::Launch(CopyKernel, dim3(4), dim3(kThreads), stream, from, to);
  emulation::Launch(CopyKernel, dim3(4), dim3(kThreads), stream, from, to);
  REQUIRE(cudaMemsetAsync(to, 0, kMiB, stream) == cudaSuccess);
  cudaGraph_t graph = nullptr;
  REQUIRE(cudaStreamEndCapture(stream, &graph) == cudaSuccess);
  cudaGraphExec_t executable = nullptr;
  REQUIRE(cudaGraphInstantiate(&executable, graph, 0) == cudaSuccess);
  const Counts counts = CountsOf(stream, [&] {
    for (int i = 0; i < 3; ++i) REQUIRE(cudaGraphLaunch(executable, stream) == cudaSuccess);
  });
  CHECK(counts.kernels == 6);
  CHECK(counts.graphs == 3);
  CHECK(counts.bytes > 3 * kMiB);
  CHECK(counts.bytes < 4 * kMiB);
  cudaGraphExecDestroy(executable);
  cudaGraphDestroy(graph);
  cudaFreeHost(pinned);
  cudaFree(from);
  cudaFree(to);
}

TEST_CASE("Emulated counts: memory has the size of a card's, without taking the host's",
          "[kernels][cuda][emulation]") {
  const TestStream stream;
  void* const large = AllocateOnDevice(size_t{40} << 30);
  float value = 7;
  REQUIRE(cudaMemcpyAsync(large, &value, sizeof(value), cudaMemcpyDefault, stream) == cudaSuccess);
  auto* const found = static_cast<float*>(AllocateOnDevice(4096));
  emulation::Launch(CopyKernel, dim3(1), dim3(kThreads), stream, static_cast<float*>(large), found);
  CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
  cudaFree(found);
  cudaFree(large);
}

}  // namespace
}  // namespace capstan::kernels::cuda::counts_test
