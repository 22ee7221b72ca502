// Tests of the emulated runtime with two GPUs: when work runs, what copies accept, and what an
// error does.
#include "kernels/cuda/emulation/runtime.h"

#include <signal.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <string>
#include <vector>

#include "kernels/cuda/emulation/death.h"
#include "kernels/cuda/emulation/device_values.h"
#include "kernels/cuda/emulation/test_stream.h"

namespace capstan::kernels::cuda::emulation::runtime_test {
namespace {

// Resets both devices: they have no error, and none of their former objects.
void ResetDevices() {
  for (const int device : {1, 0}) {
    cudaSetDevice(device);
    cudaDeviceReset();
  }
}

// ---------------------------------------------------------------- when work runs

TEST_CASE("Emulated streams: work runs when somebody waits, in its order",
          "[kernels][cuda][emulation]") {
  std::string log;
  const TestStream a, b;
  a.Say('1', log);
  b.Say('x', log);
  a.Say('2', log);
  CHECK(log.empty());
  CHECK(cudaStreamSynchronize(a) == cudaSuccess);
  CHECK(log == "12");
  CHECK(cudaStreamSynchronize(b) == cudaSuccess);
  CHECK(log == "12x");
}

TEST_CASE("Emulated streams: an event lets run what comes before it, no more",
          "[kernels][cuda][emulation]") {
  std::string log;
  const TestStream a, b;
  cudaEvent_t event = nullptr;
  REQUIRE(cudaEventCreate(&event) == cudaSuccess);
  CHECK(cudaEventQuery(event) == cudaSuccess);  // Never recorded.
  a.Say('1', log);
  REQUIRE(cudaEventRecord(event, a) == cudaSuccess);
  a.Say('2', log);
  b.Say('x', log);
  SECTION("for a stream that waits") {
    REQUIRE(cudaStreamWaitEvent(b, event, 0) == cudaSuccess);
    b.Say('y', log);
    CHECK(cudaStreamSynchronize(b) == cudaSuccess);
    CHECK(log == "x1y");
  }
  SECTION("for the host") {
    CHECK(cudaEventSynchronize(event) == cudaSuccess);
    CHECK(log == "1");
    CHECK(cudaEventQuery(event) == cudaSuccess);
  }
  SECTION("recorded again, it is another point") {
    REQUIRE(cudaEventRecord(event, a) == cudaSuccess);
    CHECK(cudaEventSynchronize(event) == cudaSuccess);
    CHECK(log == "12");
  }
  CHECK(cudaEventDestroy(event) == cudaSuccess);
  CHECK(cudaEventDestroy(event) == cudaErrorInvalidResourceHandle);
}

TEST_CASE("Emulated streams: a query says that there was work, and is done with a piece of it",
          "[kernels][cuda][emulation]") {
  std::string log;
  const TestStream stream;
  stream.Say('1', log);
  stream.Say('2', log);
  CHECK(cudaStreamQuery(stream) == cudaErrorNotReady);
  CHECK(log == "1");
  CHECK(cudaStreamQuery(stream) == cudaErrorNotReady);
  CHECK(cudaStreamQuery(stream) == cudaSuccess);
  CHECK(log == "12");
  CHECK(cudaGetLastError() == cudaErrorNotReady);
  CHECK(cudaGetLastError() == cudaSuccess);
}

TEST_CASE("Emulated streams: to destroy one waits for nothing, and forgets nothing",
          "[kernels][cuda][emulation]") {
  std::string log;
  void* const memory = AllocateOnDevice(8);
  cudaEvent_t event = nullptr;
  REQUIRE(cudaEventCreate(&event) == cudaSuccess);
  const TestStream stream;
  stream.Say('1', log);
  REQUIRE(cudaEventRecord(event, stream) == cudaSuccess);
  stream.Say('2', log);
  CHECK(cudaStreamDestroy(stream) == cudaSuccess);
  CHECK(cudaStreamSynchronize(stream) == cudaErrorInvalidResourceHandle);
  CHECK(log.empty());
  CHECK(cudaEventSynchronize(event) == cudaSuccess);
  CHECK(log == "1");
  CHECK(cudaFree(memory) == cudaSuccess);  // cudaFree waits for the device.
  CHECK(log == "12");
  cudaEventDestroy(event);
}

TEST_CASE("Emulated streams: take the work of their own device only",
          "[kernels][cuda][emulation]") {
  const TestStream stream;
  cudaEvent_t event = nullptr;
  REQUIRE(cudaEventCreate(&event) == cudaSuccess);
  REQUIRE(cudaSetDevice(1) == cudaSuccess);
  CHECK(Enqueue(stream, [] { return cudaSuccess; }) == cudaErrorInvalidResourceHandle);
  const TestStream other;
  CHECK(cudaEventRecord(event, other) == cudaErrorInvalidResourceHandle);
  CHECK(cudaStreamWaitEvent(other, event, 0) == cudaSuccess);
  CHECK(cudaSetDevice(2) == cudaErrorInvalidDevice);
  cudaEventDestroy(event);
  cudaSetDevice(0);
}

// ---------------------------------------------------------------- memory

TEST_CASE("Emulated copies: come at their turn; those of pageable memory at once",
          "[kernels][cuda][emulation]") {
  const TestStream stream;
  auto* const device = static_cast<int*>(AllocateOnDevice(sizeof(int)));
  auto* const pinned = static_cast<int*>(AllocatePinned(sizeof(int)));
  *pinned = 5;
  REQUIRE(cudaMemcpyAsync(device, pinned, 4, cudaMemcpyHostToDevice, stream) == cudaSuccess);
  *pinned = 6;  // This is too early: the copy reads it.
  int pageable = 0;
  REQUIRE(cudaMemcpyAsync(&pageable, device, 4, cudaMemcpyDeviceToHost, stream) == cudaSuccess);
  CHECK(pageable == 6);
  REQUIRE(cudaMemsetAsync(device, 1, 4, stream) == cudaSuccess);
  CHECK(Read(device) == 6);
  REQUIRE(cudaMemcpyAsync(pinned, device, 4, cudaMemcpyDefault, stream) == cudaSuccess);
  CHECK(*pinned == 6);
  REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
  CHECK(*pinned == 0x01010101);
  cudaFreeHost(pinned);
  cudaFree(device);
}

TEST_CASE("Emulated copies: know what memory is whose", "[kernels][cuda][emulation]") {
  const TestStream stream;
  auto* const mine = static_cast<char*>(AllocateOnDevice(8));
  REQUIRE(cudaSetDevice(1) == cudaSuccess);
  auto* const other = static_cast<char*>(AllocateOnDevice(8));
  Write(other, 'o');
  REQUIRE(cudaSetDevice(0) == cudaSuccess);
  char host[8] = {};
  const auto copy = [&](void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
    return cudaMemcpyAsync(to, from, bytes, kind, stream);
  };
  CHECK(copy(mine, host, 8, cudaMemcpyDeviceToDevice) == cudaErrorInvalidValue);
  CHECK(copy(mine, host, 9, cudaMemcpyHostToDevice) == cudaErrorInvalidValue);
  CHECK(copy(host, host, 8, cudaMemcpyDefault) == cudaErrorInvalidValue);
  CHECK(copy(mine, other, 8, cudaMemcpyDeviceToDevice) == cudaSuccess);
  CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
  CHECK(Read(mine) == 'o');
  CHECK(IsDeviceMemory(0, mine, 8));
  CHECK_FALSE(IsDeviceMemory(0, other, 8));
  CHECK(cudaMemsetAsync(other, 0, 8, stream) == cudaErrorInvalidValue);
  CHECK(cudaFree(host) == cudaErrorInvalidValue);
  CHECK(cudaFreeHost(mine) == cudaErrorInvalidValue);
  CHECK(cudaFree(mine) == cudaSuccess);
  CHECK(cudaFree(mine) == cudaErrorInvalidValue);
  CHECK(cudaFree(other) == cudaSuccess);
}

TEST_CASE("Emulated memory: the host cannot follow a pointer to it; nor work of another device",
          "[kernels][cuda][emulation]") {
  auto* const memory = static_cast<volatile char*>(AllocateOnDevice(8));
  const auto touched_by = [memory](int device) {
    return DeathOf([memory, device] {
             cudaSetDevice(device);
             const TestStream stream;
             static_cast<void>(Enqueue(stream, [memory] {
               memory[0] = 1;
               return cudaSuccess;
             }));
             cudaStreamSynchronize(stream);
           })
        .signal;
  };
  CHECK(DeathOf([memory] { memory[0] = 1; }).signal == SIGSEGV);
  CHECK(touched_by(0) == 0);
  CHECK(touched_by(1) == SIGSEGV);
  cudaFree(const_cast<char*>(memory));
}

TEST_CASE("Emulated memory: pinned memory that is freed too early is a fault of the copy",
          "[kernels][cuda][emulation]") {
  const TestStream stream;
  void* const device = AllocateOnDevice(8);
  void* const pinned = AllocatePinned(8);
  REQUIRE(cudaMemcpyAsync(device, pinned, 8, cudaMemcpyHostToDevice, stream) == cudaSuccess);
  CHECK(cudaFreeHost(pinned) == cudaSuccess);
  CHECK(cudaStreamSynchronize(stream) == cudaErrorIllegalAddress);
  ResetDevices();
}

// ---------------------------------------------------------------- errors

TEST_CASE("Emulated errors: one of work is the device's, for all later calls",
          "[kernels][cuda][emulation]") {
  std::string log;
  void* memory = AllocateOnDevice(8);
  const TestStream a, b;
  a.Fail(cudaErrorLaunchFailure);
  a.Say('1', log);
  b.Say('x', log);
  cudaGetLastError();  // Clears errors of other tests.
  CHECK(cudaGetLastError() == cudaSuccess);
  CHECK(cudaStreamSynchronize(a) == cudaErrorLaunchFailure);
  CHECK(cudaStreamSynchronize(b) == cudaErrorLaunchFailure);
  CHECK(cudaMalloc(&memory, 8) == cudaErrorLaunchFailure);
  CHECK(cudaMemsetAsync(memory, 0, 8, b) == cudaErrorLaunchFailure);
  CHECK(Enqueue(b, [] { return cudaSuccess; }) == cudaErrorLaunchFailure);
  CHECK(cudaSetDevice(0) == cudaErrorLaunchFailure);
  CHECK(log.empty());
  // Reporting the error does not clear it.
  CHECK(cudaGetLastError() == cudaErrorLaunchFailure);
  CHECK(cudaPeekAtLastError() == cudaErrorLaunchFailure);
  // The other device works.
  REQUIRE(cudaSetDevice(1) == cudaSuccess);
  cudaGetLastError();  // Clears the thread's error.
  const TestStream other;
  other.Say('o', log);
  CHECK(cudaStreamSynchronize(other) == cudaSuccess);
  CHECK(cudaGetLastError() == cudaSuccess);
  CHECK(log == "o");
  ResetDevices();
  const TestStream fresh;
  fresh.Say('f', log);
  CHECK(cudaStreamSynchronize(fresh) == cudaSuccess);
  CHECK(log == "of");
}

TEST_CASE("Emulated errors: reach those who wait for the device that has them",
          "[kernels][cuda][emulation]") {
  const TestStream first;
  cudaEvent_t event = nullptr;
  REQUIRE(cudaEventCreate(&event) == cudaSuccess);
  first.Fail(cudaErrorIllegalAddress);
  REQUIRE(cudaEventRecord(event, first) == cudaSuccess);
  REQUIRE(cudaSetDevice(1) == cudaSuccess);
  const TestStream second;
  REQUIRE(cudaStreamWaitEvent(second, event, 0) == cudaSuccess);
  CHECK(cudaStreamSynchronize(second) == cudaErrorIllegalAddress);
  CHECK(cudaEventQuery(event) == cudaErrorIllegalAddress);
  ResetDevices();
}

}  // namespace
}  // namespace capstan::kernels::cuda::emulation::runtime_test
