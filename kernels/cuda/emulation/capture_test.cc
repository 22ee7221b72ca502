// Tests of the emulated runtime: recording of streams into graphs.
#include <cuda_runtime_api.h>

#include <catch2/catch.hpp>
#include <string>
#include <thread>

#include "kernels/cuda/emulation/test_stream.h"

namespace capstan::kernels::cuda::emulation::capture_test {
namespace {

cudaError_t Begin(const TestStream& stream,
                  cudaStreamCaptureMode mode = cudaStreamCaptureModeThreadLocal) {
  return cudaStreamBeginCapture(stream, mode);
}
cudaError_t End(const TestStream& stream) {
  cudaGraph_t graph = nullptr;
  const cudaError_t error = cudaStreamEndCapture(stream, &graph);
  CHECK((graph == nullptr) == (error != cudaSuccess));
  cudaGraphDestroy(graph);
  return error;
}

TEST_CASE("Emulated capture: what is recorded runs at each launch, in the stream's order",
          "[kernels][cuda][emulation]") {
  std::string log;
  const TestStream stream;
  REQUIRE(Begin(stream) == cudaSuccess);
  CHECK(Begin(stream) == cudaErrorIllegalState);
  stream.Say('1', log);
  stream.Say('2', log);
  CHECK(End(stream) == cudaSuccess);
  CHECK(End(stream) == cudaErrorIllegalState);
  CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
  CHECK(log.empty());

  REQUIRE(Begin(stream) == cudaSuccess);
  stream.Say('3', log);
  cudaGraph_t graph = nullptr;
  REQUIRE(cudaStreamEndCapture(stream, &graph) == cudaSuccess);
  cudaGraphExec_t executable = nullptr;
  REQUIRE(cudaGraphInstantiate(&executable, graph, 0) == cudaSuccess);
  cudaGraphDestroy(graph);
  REQUIRE(cudaGraphLaunch(executable, stream) == cudaSuccess);
  stream.Say('x', log);
  REQUIRE(cudaGraphLaunch(executable, stream) == cudaSuccess);
  cudaGraphExecDestroy(executable);  // Launched work still runs.
  CHECK(log.empty());
  CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
  CHECK(log == "3x3");
}

TEST_CASE("Emulated capture: the recording thread may not change memory, wait or ask",
          "[kernels][cuda][emulation]") {
  const TestStream stream, other;
  cudaEvent_t event = nullptr;
  REQUIRE(cudaEventCreate(&event) == cudaSuccess);
  void* const device = AllocateOnDevice(8);
  void* const pinned = AllocatePinned(8);
  void* made = nullptr;
  const auto refused = [&](const auto& call) {
    REQUIRE(Begin(stream) == cudaSuccess);
    CHECK(call() == cudaErrorStreamCaptureUnsupported);
    CHECK(End(stream) == cudaErrorStreamCaptureInvalidated);
  };
  refused([&] { return cudaMalloc(&made, 8); });
  refused([&] { return cudaFree(device); });
  refused([&] { return cudaMallocHost(&made, 8); });
  refused([&] { return cudaFreeHost(pinned); });
  refused([&] { return cudaStreamSynchronize(stream); });
  refused([&] { return cudaStreamQuery(stream); });
  refused([&] { return cudaStreamSynchronize(other); });
  refused([&] { return cudaStreamQuery(other); });
  refused([&] { return cudaEventSynchronize(event); });
  refused([&] { return cudaEventQuery(event); });
  int pageable = 0;
  refused([&] { return cudaMemcpyAsync(device, &pageable, 4, cudaMemcpyHostToDevice, stream); });
  REQUIRE(Begin(stream) == cudaSuccess);
  CHECK(cudaMemcpyAsync(device, pinned, 8, cudaMemcpyHostToDevice, stream) == cudaSuccess);
  CHECK(End(stream) == cudaSuccess);
  cudaEventDestroy(event);
  CHECK(cudaFree(device) == cudaSuccess);
  CHECK(cudaFreeHost(pinned) == cudaSuccess);
}

TEST_CASE("Emulated capture: what other threads may do, its mode says",
          "[kernels][cuda][emulation]") {
  const TestStream stream, other;
  const auto elsewhere = [](const auto& call) {
    cudaError_t error = cudaSuccess;
    std::thread([&] { error = call(); }).join();
    return error;
  };
  const auto allocate = [&] {
    if (cudaStreamQuery(other) != cudaSuccess) return cudaErrorStreamCaptureUnsupported;
    void* memory = nullptr;
    const cudaError_t error = cudaMallocHost(&memory, 8);
    return error == cudaSuccess ? cudaFreeHost(memory) : error;
  };
  REQUIRE(Begin(stream) == cudaSuccess);
  CHECK(elsewhere(allocate) == cudaSuccess);
  CHECK(elsewhere([&] { return End(stream); }) == cudaErrorStreamCaptureWrongThread);
  CHECK(End(stream) == cudaSuccess);

  REQUIRE(Begin(stream, cudaStreamCaptureModeGlobal) == cudaSuccess);
  CHECK(elsewhere(allocate) == cudaErrorStreamCaptureUnsupported);
  CHECK(End(stream) == cudaErrorStreamCaptureInvalidated);

  REQUIRE(Begin(stream, cudaStreamCaptureModeRelaxed) == cudaSuccess);
  CHECK(allocate() == cudaSuccess);
  CHECK(elsewhere([&] { return End(stream); }) == cudaSuccess);
}

}  // namespace
}  // namespace capstan::kernels::cuda::emulation::capture_test
