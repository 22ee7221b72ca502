// Tests of kernels on an emulated GPU: barriers, exchanges, orders, shared variables.
#include "kernels/cuda/emulation/grid/grid.h"

#include <signal.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "kernels/cuda/emulation/death.h"
#include "kernels/cuda/emulation/device_values.h"
#include "kernels/cuda/emulation/grid/device_code.h"

namespace capstan::kernels::cuda::grid_test {
namespace {

using emulation::Death;
using emulation::DeathOf;

constexpr unsigned kThreads = 64;

// Runs a grid on its own stream. The kernel gets an array of `count` values; returns them.
template <typename Kernel>
std::vector<float> Results(Kernel* kernel, dim3 grid, dim3 block, size_t count) {
  void* memory = nullptr;
  cudaStream_t stream = nullptr;
  REQUIRE(cudaMalloc(&memory, count * sizeof(float)) == cudaSuccess);
  REQUIRE(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
  auto* const results = static_cast<float*>(memory);
  emulation::Launch(kernel, grid, block, stream, results);
  CHECK(cudaGetLastError() == cudaSuccess);
  REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
  std::vector<float> values = emulation::ReadAll(results, count);
  cudaStreamDestroy(stream);
  cudaFree(memory);
  return values;
}

// ---------------------------------------------------------------- places, orders

void PlaceKernel(float* results) {
  const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  const unsigned thread = threadIdx.x + 3 * (threadIdx.y + 2 * threadIdx.z);
  results[block * 12 + thread] = static_cast<float>(block * 100 + thread);
}

TEST_CASE("Emulated grid: every thread of every block has its place",
          "[kernels][cuda][emulation]") {
  const std::vector<float> results = Results(PlaceKernel, dim3(2, 3, 4), dim3(3, 2, 2), 24 * 12);
  for (size_t i = 0; i < results.size(); ++i) {
    CHECK(results[i] == static_cast<float>(i / 12 * 100 + i % 12));
  }
}

void LastKernel(float* results) {  // It has no barrier: the last thread wins.
  results[0] = static_cast<float>(blockIdx.x);
  results[1] = static_cast<float>(threadIdx.x);
}

TEST_CASE("Emulated grid: blocks and threads change their orders, with no short period",
          "[kernels][cuda][emulation]") {
  for (const int every : {1, 2, 3, 4}) {  // An op may launch several kernels.
    std::set<std::vector<float>> seen;
    for (int i = 0; i < 40; ++i) {
      for (int skipped = 1; skipped < every; ++skipped) Results(LastKernel, 2, 2, 2);
      seen.insert(Results(LastKernel, 2, 2, 2));
    }
    CHECK(seen.size() == 4);
  }
}

TEST_CASE("Emulated grid: one that no card has is refused", "[kernels][cuda][emulation]") {
  for (const auto& [grid, block] :
       {std::pair{dim3(0), dim3(1)}, {dim3(1), dim3(1025)}, {dim3(1, 65536), dim3(1)}}) {
    emulation::Launch(LastKernel, grid, block, nullptr, nullptr);
    CHECK(cudaGetLastError() == cudaErrorInvalidConfiguration);
  }
}

// ---------------------------------------------------------------- barriers

template <int kTimes>
void ReverseKernel(float* results) {
  __shared__ float values[kThreads];
  values[threadIdx.x] = static_cast<float>(threadIdx.x);
  for (int i = 0; i < kTimes; ++i) {
    __syncthreads();
    const float other = values[kThreads - 1 - threadIdx.x];
    __syncthreads();
    values[threadIdx.x] = other;
  }
  results[threadIdx.x] = values[threadIdx.x];
}

TEST_CASE("Emulated grid: a barrier lets nobody on before all are there",
          "[kernels][cuda][emulation]") {
  for (int order = 0; order < 8; ++order) {
    const std::vector<float> once = Results(ReverseKernel<1>, 1, kThreads, kThreads);
    const std::vector<float> twice = Results(ReverseKernel<2>, 1, kThreads, kThreads);
    for (size_t i = 0; i < kThreads; ++i) {
      CHECK(once[i] == static_cast<float>(kThreads - 1 - i));
      CHECK(twice[i] == static_cast<float>(i));
    }
  }
}

void UninitializedKernel(float* results) {
  __shared__ float value;
  __syncthreads();
  if (threadIdx.x == 0) results[blockIdx.x] = value;
  __syncthreads();
  value = 1;
}

TEST_CASE("Emulated grid: what a block shares is NaN at first, in each block",
          "[kernels][cuda][emulation]") {
#if defined(__clang__)
  WARN("SKIPPED: only GCC puts the variables side by side");
#else
  for (int again = 0; again < 2; ++again) {
    for (const float value : Results(UninitializedKernel, 3, 2, 3)) CHECK(std::isnan(value));
  }
#endif
}

void EndedKernel(float*) {
  if (threadIdx.x == 1) return;
  __syncthreads();
}
void ElsewhereKernel(float*) {
  if (threadIdx.x < 32) {
    __syncthreads();
  } else {
    __shfl_xor_sync(threadIdx.x == 40 ? 1u : 0xffffffffu, 1, 1);
  }
}
void MissingLaneKernel(float*) {
  if (threadIdx.x != 5) __shfl_xor_sync(0xffffffffu, 1, 1);
}
void ShortWarpKernel(float*) { __shfl_xor_sync(0xffffffffu, 1, 1); }

TEST_CASE("Emulated grid: a wait that would never end, or is undefined, ends the process",
          "[kernels][cuda][emulation]") {
  const struct {
    void (*kernel)(float*);
    unsigned threads;
    const char* words;
  } cases[] = {{EndedKernel, 64, "wait for some that have ended"},
               {ElsewhereKernel, 64, "exchanges in a part of a warp"},
               {MissingLaneKernel, 32, "wait for some that have ended"},
               {ShortWarpKernel, 31, "a warp with fewer lanes"}};
  for (const auto& one : cases) {
    const Death death = DeathOf([&] { Results(one.kernel, 1, one.threads, 1); });
    CHECK(death.signal == SIGABRT);
    CHECK_THAT(death.words, Catch::Contains(one.words));
  }
}

// ---------------------------------------------------------------- exchanges, atomics

void ExchangeKernel(float* results) {
  const auto mine = static_cast<float>(threadIdx.x);
  float sum = mine;
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
  const float before = __shfl_up_sync(0xffffffffu, mine, 2u);
  const uint32_t largest = __reduce_max_sync(0xffffffffu, threadIdx.x);
  results[threadIdx.x] = sum;
  results[kThreads + threadIdx.x] = before;
  results[2 * kThreads + threadIdx.x] = static_cast<float>(largest);
}

TEST_CASE("Emulated grid: lanes exchange within their warp", "[kernels][cuda][emulation]") {
  for (int order = 0; order < 8; ++order) {
    const std::vector<float> results = Results(ExchangeKernel, 1, kThreads, 3 * kThreads);
    for (size_t i = 0; i < kThreads; ++i) {
      const size_t first = i / 32 * 32;
      CHECK(results[i] == static_cast<float>(32 * first + 31 * 32 / 2));
      CHECK(results[kThreads + i] == static_cast<float>(i - first < 2 ? i : i - 2));
      CHECK(results[2 * kThreads + i] == static_cast<float>(first + 31));
    }
  }
}

void AtomicKernel(float* results) {
  if (threadIdx.x == 0 && blockIdx.x == 0) results[0] = results[1] = 100;
  __syncthreads();
  atomicAdd(&results[0], 1.0f);
  atomicMin(&results[1], static_cast<float>(threadIdx.x + 3));
}

TEST_CASE("Emulated grid: atomics lose nothing", "[kernels][cuda][emulation]") {
  CHECK(Results(AtomicKernel, 1, kThreads, 2) == std::vector<float>{100 + kThreads, 3});
}

}  // namespace
}  // namespace capstan::kernels::cuda::grid_test
