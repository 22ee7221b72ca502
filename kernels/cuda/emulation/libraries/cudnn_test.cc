// Tests of the emulated cuDNN with convolutions that the backend does not make: planes (NCHW), a
// window and strides that are not square, and y = 2 * convolution + y / 2; or y =
// relu(convolution + bias).
#include <cuda_runtime_api.h>
#include <cudnn.h>

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "kernels/cuda/emulation/libraries/cudnn_library.h"

namespace capstan::kernels::cuda::emulation::cudnn_test {
namespace {

using Dimensions = std::array<int64_t, 4>;  // n, c, h, w.

constexpr Dimensions kX = {2, 3, 5, 6};
constexpr Dimensions kWeight = {4, 3, 3, 2};
constexpr Dimensions kY = {2, 4, 3, 6};
constexpr Dimensions kBias = {1, 4, 1, 1};
constexpr std::array<int64_t, 2> kStride = {2, 1}, kBefore = {1, 0}, kAfter = {1, 1};

int64_t CountOf(const Dimensions& d) { return d[0] * d[1] * d[2] * d[3]; }
size_t At(const Dimensions& d, int64_t n, int64_t c, int64_t h, int64_t w) {
  return static_cast<size_t>(((n * d[1] + c) * d[2] + h) * d[3] + w);
}

// ---------------------------------------------------------------- the library's objects

void Succeed(cudnnStatus_t status) { REQUIRE(status == CUDNN_STATUS_SUCCESS); }
void Succeed(cudaError_t error) { REQUIRE(error == cudaSuccess); }

struct Destroy {
  void operator()(cudnnBackendDescriptor_t d) const { cudnnBackendDestroyDescriptor(d); }
  void operator()(cudnnHandle_t handle) const { cudnnDestroy(handle); }
};
struct Free {
  void operator()(void* memory) const { cudaFree(memory); }
};
using Descriptor = std::unique_ptr<std::remove_pointer_t<cudnnBackendDescriptor_t>, Destroy>;
using Handle = std::unique_ptr<std::remove_pointer_t<cudnnHandle_t>, Destroy>;
using Memory = std::unique_ptr<void, Free>;

Descriptor Make(cudnnBackendDescriptorType_t type) {
  cudnnBackendDescriptor_t made = nullptr;
  Succeed(cudnnBackendCreateDescriptor(type, &made));
  return Descriptor(made);
}

template <typename T, size_t kCount>
void Set(const Descriptor& descriptor, cudnnBackendAttributeName_t name,
         cudnnBackendAttributeType_t type, const std::array<T, kCount>& values) {
  Succeed(cudnnBackendSetAttribute(descriptor.get(), name, type, kCount, values.data()));
}
void Set(const Descriptor& descriptor, cudnnBackendAttributeName_t name, const Descriptor& part) {
  Set(descriptor, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, std::array{part.get()});
}

Descriptor Finalized(Descriptor descriptor) {
  Succeed(cudnnBackendFinalize(descriptor.get()));
  return descriptor;
}

Descriptor Tensor(int64_t id, const Dimensions& d, bool is_virtual = false) {
  Descriptor t = Make(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  Set(t, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, std::array{CUDNN_DATA_FLOAT});
  Set(t, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, d);
  Set(t, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64,
      Dimensions{d[1] * d[2] * d[3], d[2] * d[3], d[3], 1});
  Set(t, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, std::array{id});
  Set(t, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, std::array{int64_t{16}});
  Set(t, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, std::array{is_virtual});
  return Finalized(std::move(t));
}

Descriptor Window() {
  Descriptor c = Make(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  using Pair = std::array<int64_t, 2>;
  Set(c, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, std::array{CUDNN_DATA_FLOAT});
  Set(c, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE,
      std::array{CUDNN_CROSS_CORRELATION});
  Set(c, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, std::array{int64_t{2}});
  Set(c, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, Pair{1, 1});
  Set(c, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, kStride);
  Set(c, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, kBefore);
  Set(c, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, kAfter);
  return Finalized(std::move(c));
}

// Makes the operation y = alpha * convolution + beta * y.
Descriptor Convolution(const Descriptor& y, float alpha, float beta) {
  const Descriptor x = Tensor(1, kX), weight = Tensor(2, kWeight);
  Descriptor operation = Make(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);
  Set(operation, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, Window());
  Set(operation, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, x);
  Set(operation, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, weight);
  Set(operation, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, y);
  Set(operation, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_TYPE_FLOAT,
      std::array{alpha});
  Set(operation, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, CUDNN_TYPE_FLOAT, std::array{beta});
  return Finalized(std::move(operation));
}

// Makes the operation y = mode(x, b), or mode(x) if `b` is null.
Descriptor Pointwise(cudnnPointwiseMode_t mode, const Descriptor& x, const Descriptor* b,
                     const Descriptor& y) {
  Descriptor rule = Make(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  Set(rule, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, std::array{mode});
  Set(rule, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, std::array{CUDNN_DATA_FLOAT});
  rule = Finalized(std::move(rule));
  Descriptor operation = Make(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  Set(operation, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, rule);
  Set(operation, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
  if (b != nullptr) Set(operation, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, *b);
  Set(operation, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
  return Finalized(std::move(operation));
}

template <size_t kCount>
Descriptor GraphOf(cudnnHandle_t handle, const std::array<Descriptor, kCount>& operations) {
  std::array<cudnnBackendDescriptor_t, kCount> raw{};
  for (size_t i = 0; i < kCount; ++i) raw[i] = operations[i].get();
  Descriptor graph = Make(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  Set(graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, std::array{handle});
  Set(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, raw);
  return Finalized(std::move(graph));
}

Descriptor ScaledGraph(cudnnHandle_t handle) {
  return GraphOf(handle, std::array{Convolution(Tensor(3, kY), 2.0f, 0.5f)});
}

Descriptor BiasReluGraph(cudnnHandle_t handle) {
  const Descriptor y = Tensor(3, kY), bias = Tensor(4, kBias), sums = Tensor(5, kY, true),
                   biased = Tensor(6, kY, true);
  return GraphOf(handle, std::array{Convolution(sums, 1.0f, 0.0f),
                                    Pointwise(CUDNN_POINTWISE_ADD, sums, &bias, biased),
                                    Pointwise(CUDNN_POINTWISE_RELU_FWD, biased, nullptr, y)});
}

// Makes a plan of the heuristic's first fallback, which is fp32 throughout.
Descriptor Plan(cudnnHandle_t handle, const Descriptor& graph) {
  Descriptor heuristic = Make(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  Set(heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
  Set(heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE,
      std::array{CUDNN_HEUR_MODE_FALLBACK});
  heuristic = Finalized(std::move(heuristic));
  const Descriptor config = Make(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
  std::array raw = {config.get()};
  int64_t count = 0;
  Succeed(cudnnBackendGetAttribute(heuristic.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                   CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, raw.data()));
  REQUIRE(count == 1);
  Descriptor plan = Make(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  Set(plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, std::array{handle});
  Set(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
  return Finalized(std::move(plan));
}

int64_t WorkspaceBytes(const Descriptor& plan) {
  int64_t bytes = -1;
  int64_t count = 0;
  Succeed(cudnnBackendGetAttribute(plan.get(), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                   CUDNN_TYPE_INT64, 1, &count, &bytes));
  return bytes;
}

// ---------------------------------------------------------------- operands

std::vector<float> Numbers(const Dimensions& d, int from) {
  std::vector<float> values(static_cast<size_t>(CountOf(d)));
  for (float& value : values) value = static_cast<float>(from++ % 11 - 5);  // Sums are exact.
  return values;
}

// Returns y + factor * convolution.
std::vector<float> Expected(const std::vector<float>& x, const std::vector<float>& weight,
                            float factor, std::vector<float> y) {
  for (int64_t n = 0; n < kY[0]; ++n)
    for (int64_t k = 0; k < kY[1]; ++k)
      for (int64_t p = 0; p < kY[2]; ++p)
        for (int64_t q = 0; q < kY[3]; ++q)
          for (int64_t c = 0; c < kX[1]; ++c)
            for (int64_t r = 0; r < kWeight[2]; ++r)
              for (int64_t s = 0; s < kWeight[3]; ++s) {
                const int64_t h = p * kStride[0] - kBefore[0] + r;
                const int64_t w = q * kStride[1] - kBefore[1] + s;
                if (h < 0 || h >= kX[2] || w < 0 || w >= kX[3]) continue;
                y[At(kY, n, k, p, q)] +=
                    factor * x[At(kX, n, c, h, w)] * weight[At(kWeight, k, c, r, s)];
              }
  return y;
}

Memory Allocate(int64_t bytes) {
  void* memory = nullptr;
  Succeed(cudaMalloc(&memory, static_cast<size_t>(bytes)));
  return Memory(memory);
}

struct Stream {
  Stream() { Succeed(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking)); }
  ~Stream() { cudaStreamDestroy(stream); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  Memory OnDevice(const std::vector<float>& values) const {
    Memory memory = Allocate(static_cast<int64_t>(values.size()) * 4);
    Copy(memory.get(), values.data(), values.size(), cudaMemcpyHostToDevice);
    return memory;
  }
  std::vector<float> OnHost(const Memory& memory, const Dimensions& d) const {
    std::vector<float> values(static_cast<size_t>(CountOf(d)));
    Copy(values.data(), memory.get(), values.size(), cudaMemcpyDeviceToHost);
    return values;
  }
  void Copy(void* to, const void* from, size_t count, cudaMemcpyKind kind) const {
    Succeed(cudaMemcpyAsync(to, from, count * sizeof(float), kind, stream));
    Succeed(cudaStreamSynchronize(stream));
  }

  cudaStream_t stream = nullptr;
};

// Makes the list of operands for tensors with the ids 1, 2, ...
template <size_t kCount>
Descriptor Pack(const std::array<void*, kCount>& tensors, void* workspace) {
  std::array<int64_t, kCount> ids{};
  for (size_t i = 0; i < kCount; ++i) ids[i] = static_cast<int64_t>(i) + 1;
  Descriptor pack = Make(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  Set(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, ids);
  Set(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, tensors);
  Set(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, std::array{workspace});
  return Finalized(std::move(pack));
}

// Everything that a run needs, with its own stream.
struct Bench {
  explicit Bench(Descriptor (*graph)(cudnnHandle_t) = ScaledGraph) {
    cudnnHandle_t made = nullptr;
    Succeed(cudnnCreate(&made));
    handle.reset(made);
    Succeed(cudnnSetStream(made, stream.stream));
    plan = Plan(made, graph(made));
    workspace = Allocate(WorkspaceBytes(plan) + 1);
  }

  template <size_t kCount>
  cudnnStatus_t Run(const std::array<void*, kCount>& tensors, void* with_workspace) const {
    return cudnnBackendExecute(handle.get(), plan.get(), Pack(tensors, with_workspace).get());
  }
  cudnnStatus_t Run() const {
    return Run(std::array{x.get(), weight.get(), y.get()}, workspace.get());
  }

  Stream stream;
  Handle handle;
  Descriptor plan;
  Memory workspace;
  Memory x = stream.OnDevice(Numbers(kX, 1));
  Memory weight = stream.OnDevice(Numbers(kWeight, 4));
  Memory y = stream.OnDevice(Numbers(kY, 9));
};

bool CanPlan() {
#if defined(__SANITIZE_ADDRESS__) || defined(CAPSTAN_TSAN)
  WARN("SKIPPED: CUDA's libraries are not made for sanitizers");
  return false;
#else
  if (!Cudnn().failure.empty()) WARN("SKIPPED: " << Cudnn().failure);
  return Cudnn().failure.empty();
#endif
}

// ---------------------------------------------------------------- cases

TEST_CASE("Emulated cuDNN: computes by the strides of tensor and window",
          "[kernels][cuda][emulation]") {
  if (!CanPlan()) return;
  const Bench bench;
  REQUIRE(bench.Run() == CUDNN_STATUS_SUCCESS);
  std::vector<float> y = Numbers(kY, 9);
  for (float& value : y) value /= 2;
  CHECK(bench.stream.OnHost(bench.y, kY) == Expected(Numbers(kX, 1), Numbers(kWeight, 4), 2, y));
}

TEST_CASE("Emulated cuDNN: adds a bias to each channel and applies ReLU behind a convolution",
          "[kernels][cuda][emulation]") {
  if (!CanPlan()) return;
  const Bench bench(BiasReluGraph);
  const std::vector<float> bias = {-20, 0, 1, 300};
  const Memory on_device = bench.stream.OnDevice(bias);
  REQUIRE(bench.Run(std::array{bench.x.get(), bench.weight.get(), bench.y.get(), on_device.get()},
                    bench.workspace.get()) == CUDNN_STATUS_SUCCESS);
  std::vector<float> y(static_cast<size_t>(CountOf(kY)));
  for (size_t i = 0; i < y.size(); ++i) y[i] = bias[i / (3 * 6) % 4];
  y = Expected(Numbers(kX, 1), Numbers(kWeight, 4), 1, y);
  REQUIRE(*std::min_element(y.begin(), y.end()) < 0);
  for (float& value : y) value = std::max(value, 0.0f);
  CHECK(bench.stream.OnHost(bench.y, kY) == y);
  // A run without the bias fails, like one without any other operand.
  CHECK(bench.Run() == CUDNN_STATUS_BAD_PARAM_NULL_POINTER);
}

TEST_CASE("Emulated cuDNN: refuses operands that a plan cannot have",
          "[kernels][cuda][emulation]") {
  if (!CanPlan()) return;
  const Bench bench;
  void* const x = bench.x.get();
  void* const weight = bench.weight.get();
  void* const y = bench.y.get();
  void* const workspace = bench.workspace.get();
  CHECK(bench.Run(std::array<void*, 3>{x, nullptr, y}, workspace) ==
        CUDNN_STATUS_BAD_PARAM_NULL_POINTER);
  CHECK(bench.Run(std::array<void*, 3>{static_cast<char*>(x) + 4, weight, y}, workspace) ==
        CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER);
  CHECK(bench.Run(std::array<void*, 3>{x, weight, static_cast<char*>(x) + 16}, workspace) ==
        CUDNN_STATUS_BAD_PARAM);
  std::array<char, 100> message{};
  cudnnGetLastErrorString(message.data(), message.size());
  CHECK(std::string(message.data()) == "tensor 1 overlaps with tensor 3");
  if (WorkspaceBytes(bench.plan) > 0) {
    CHECK(bench.Run(std::array<void*, 3>{x, weight, y}, nullptr) ==
          CUDNN_STATUS_BAD_PARAM_NULL_POINTER);
    CHECK(bench.Run(std::array<void*, 3>{x, weight, y}, y) == CUDNN_STATUS_BAD_PARAM);
  }
  CHECK(cudnnBackendExecute(nullptr, bench.plan.get(), bench.plan.get()) == CUDNN_STATUS_BAD_PARAM);
}

TEST_CASE("Emulated cuDNN: memory that is not the card's is a fault of the stream",
          "[kernels][cuda][emulation]") {
  if (!CanPlan()) return;
  const Bench bench;
  std::vector<double> host(static_cast<size_t>(CountOf(kX)));
  REQUIRE(bench.Run(std::array<void*, 3>{host.data(), bench.weight.get(), bench.y.get()},
                    bench.workspace.get()) == CUDNN_STATUS_SUCCESS);
  CHECK(cudaStreamSynchronize(bench.stream.stream) == cudaErrorIllegalAddress);
  cudaDeviceReset();  // Otherwise the device keeps the error.
}

}  // namespace
}  // namespace capstan::kernels::cuda::emulation::cudnn_test
