#include "kernels/cuda/plugin/backend_impl.h"

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "kernels/cuda/own/codec_kernels.h"
#include "kernels/cuda/own/element_kernels.h"
#include "kernels/cuda/plans/convolution.h"
#include "kernels/cuda/plans/cuda_plan.h"
#include "kernels/cuda/plans/device.h"
#include "kernels/cuda/plans/fully_connected.h"
#include "kernels/cuda/plans/own_plans.h"
#include "kernels/cuda/plans/status.h"
#include "kernels/cuda/plugin/nccl_collective.h"

namespace capstan::kernels::cuda {
namespace {

// An executable graph of work that was captured from a stream.
class CudaGraph : public DeviceGraph {
 public:
  CudaGraph(Device& device, cudaGraphExec_t executable)
      : device_(device), executable_(executable), workspace_(device.workspace_owner()) {}
  ~CudaGraph() override {
    if (device_.Enter().ok()) cudaGraphExecDestroy(executable_);
  }
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;

  absl::Status Launch() override {
    CAPSTAN_RETURN_IF_ERROR(device_.Enter());
    CAPSTAN_CUDA_CHECK(cudaGraphLaunch(executable_, device_.stream()), "launching a graph");
    return absl::OkStatus();
  }

 private:
  Device& device_;
  const cudaGraphExec_t executable_;
  const std::shared_ptr<void> workspace_;  // The workspace that the recorded work uses.
};

class CudaEvent : public DeviceEvent {
 public:
  CudaEvent(const Device& device, cudaEvent_t event) : device_(device), event_(event) {}
  ~CudaEvent() override {
    if (device_.Enter().ok()) cudaEventDestroy(event_);
  }
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;

  cudaEvent_t get() const { return event_; }

 private:
  const Device& device_;
  const cudaEvent_t event_;
};

absl::StatusOr<cudaEvent_t> EventOf(DeviceEvent& event) {
  auto* const mine = dynamic_cast<CudaEvent*>(&event);
  if (mine == nullptr) return absl::InvalidArgumentError("the event is another backend's");
  return mine->get();
}

absl::StatusOr<Number> NumberOf(DataType dtype) {
  if (dtype == DataType::kFloat32) return Number::kFp32;
  if (dtype == DataType::kBfloat16) return Number::kBf16;
  if (dtype == DataType::kFloat16) return Number::kFp16;
  return absl::InvalidArgumentError("integers are not converted");
}

absl::Status CheckCount(const char* name, int64_t n, int64_t max) {
  if (n >= 0 && n <= max) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(name, " is ", n, ", expected 0 <= ", name, " <= ", max));
}

absl::Status CheckPointer(const char* op, const char* name, const void* pointer, int64_t count) {
  if (pointer != nullptr || count == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(op, ": ", name, " is null, expected ", count, " elements"));
}

class CudaBackendImpl : public CudaBackend {
 public:
  explicit CudaBackendImpl(std::unique_ptr<Device> device)
      : device_(std::move(device)), convolutions_(*device_), fully_connected_(*device_) {}

  // ---------------------------------------------------------------- Backend
  std::string Name() const override { return "cuda"; }
  DataType TensorType() const override { return TensorTypeOf(device_->options().compute); }
  bool Supports(const OpDesc& desc) const override {
    return !IsHostOnly(desc) && MakeSignature(desc).ok();
  }

  absl::StatusOr<std::unique_ptr<Plan>> Prepare(const OpDesc& desc) override {
    CAPSTAN_ASSIGN_OR_RETURN(const OpSignature plain, MakeSignature(desc));
    if (IsHostOnly(desc)) {
      return absl::UnimplementedError(absl::StrCat(ToString(desc), ": only CPUs compute it"));
    }
    CAPSTAN_RETURN_IF_ERROR(device_->Enter());
    if (device_->capturing()) {
      return absl::FailedPreconditionError("no op can be prepared while work is being recorded");
    }
    absl::StatusOr<std::unique_ptr<CudaPlan>> plan = PlanOf(WithTensorType(plain, TensorType()));
    cudaGetLastError();  // Clears errors that libraries leave after attempts that fail.
    CAPSTAN_RETURN_IF_ERROR(plan.status());
    return std::unique_ptr<Plan>(*std::move(plan));
  }

  absl::Status Run(Plan& plan, absl::Span<const TensorView> inputs,
                   absl::Span<const TensorView> outputs, const RunOptions& options) override {
    auto* const cuda_plan = dynamic_cast<CudaPlan*>(&plan);
    if (cuda_plan == nullptr) {
      return absl::InvalidArgumentError("the plan was prepared by another backend");
    }
    CAPSTAN_RETURN_IF_ERROR(CheckViews(cuda_plan->signature(), inputs, outputs));
    CAPSTAN_RETURN_IF_ERROR(device_->Enter());
    return cuda_plan->Execute(inputs, outputs, options);
  }

  void* Allocate(int64_t bytes) override {
    const absl::StatusOr<void*> memory = TryAllocate(bytes);
    return memory.ok() ? *memory : nullptr;
  }
  void Free(void* memory) override {
    if (memory != nullptr && device_->Enter().ok()) cudaFree(memory);
  }

  absl::Status Copy(void* to, const void* from, int64_t bytes) override {
    if (device_->capturing()) {
      return absl::FailedPreconditionError("a copy that waits cannot be recorded");
    }
    CAPSTAN_RETURN_IF_ERROR(CopyAsync(Stream::kCompute, to, from, bytes));
    return device_->AwaitStream(device_->stream());
  }

  absl::Status Synchronize() override {
    CAPSTAN_RETURN_IF_ERROR(device_->Enter());
    return device_->Synchronize();
  }

  // ---------------------------------------------------------------- GraphDevice
  absl::Status BeginCapture() override {
    if (device_->capturing()) return absl::FailedPreconditionError("work is already recorded");
    CAPSTAN_RETURN_IF_ERROR(device_->Enter());
    CAPSTAN_CUDA_CHECK(cudaStreamBeginCapture(device_->stream(), cudaStreamCaptureModeThreadLocal),
                       "beginning to record");
    device_->set_capturing(true);
    return absl::OkStatus();
  }

  absl::StatusOr<std::unique_ptr<DeviceGraph>> EndCapture() override {
    if (!device_->capturing()) return absl::FailedPreconditionError("no work is being recorded");
    CAPSTAN_RETURN_IF_ERROR(device_->Enter());
    device_->set_capturing(false);
    cudaGraph_t graph = nullptr;
    const cudaError_t ended = cudaStreamEndCapture(device_->stream(), &graph);
    if (ended != cudaSuccess) {
      return absl::FailedPreconditionError(FromCuda(ended, "recording").message());
    }
    cudaGraphExec_t executable = nullptr;
    const cudaError_t made = cudaGraphInstantiate(&executable, graph, 0);
    cudaGraphDestroy(graph);
    CAPSTAN_CUDA_CHECK(made, "making a graph of what was recorded");
    return std::unique_ptr<DeviceGraph>(std::make_unique<CudaGraph>(*device_, executable));
  }

  void CaptureRefused(const std::string& reason) override {
    DeviceBackend::CaptureRefused(reason);
    if (device_->options().say == nullptr) return;
    device_->options().say(absl::StrCat("a step of ", Label(),
                                        " is not recorded as a graph, and is slower: ", reason));
  }

  // ---------------------------------------------------------------- DeviceBackend
  std::string Label() const override { return absl::StrCat("GPU ", device_->options().device); }
  absl::StatusOr<std::unique_ptr<Collective>> Join(
      absl::Span<DeviceBackend* const> members) override;
  absl::StatusOr<DeviceMemoryInfo> Memory() override;

  absl::StatusOr<void*> TryAllocate(int64_t bytes) override {
    CAPSTAN_RETURN_IF_ERROR(device_->Enter());
    CAPSTAN_ASSIGN_OR_RETURN(DeviceMemory memory, device_->Allocate(bytes, "memory"));
    return memory.release();
  }

  absl::StatusOr<void*> AllocatePinned(int64_t bytes) override {
    CAPSTAN_RETURN_IF_ERROR(CheckCount("bytes", bytes, INT64_MAX));
    CAPSTAN_RETURN_IF_ERROR(device_->Enter());
    void* memory = nullptr;
    CAPSTAN_CUDA_CHECK(cudaMallocHost(&memory, static_cast<size_t>(std::max<int64_t>(bytes, 1))),
                       absl::StrCat("allocating ", bytes, " bytes of pinned memory"));
    return memory;
  }
  void FreePinned(void* memory) override {
    if (memory != nullptr && device_->Enter().ok()) cudaFreeHost(memory);
  }

  absl::Status CopyAsync(Stream stream, void* to, const void* from, int64_t bytes) override {
    if (bytes < 0) {
      return absl::InvalidArgumentError(absl::StrCat("copy of ", bytes, " bytes, expected >= 0"));
    }
    if (bytes == 0) return absl::OkStatus();
    CAPSTAN_RETURN_IF_ERROR(device_->Enter());
    CAPSTAN_CUDA_CHECK(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDefault,
                                       device_->stream(stream)),
                       absl::StrCat("copying ", bytes, " bytes"));
    return absl::OkStatus();
  }

  absl::Status Convert(Stream stream, const TensorView& from, const TensorView& to) override;
  absl::Status LookUp(Stream stream, const void* from, const float* table, int64_t channels,
                      const TensorView& to) override;
  absl::StatusOr<std::unique_ptr<DeviceEvent>> MakeEvent(EventUse use) override;
  absl::Status Record(DeviceEvent& event, Stream stream) override;
  absl::Status Wait(Stream stream, DeviceEvent& event) override;
  absl::Status Await(DeviceEvent& event) override;
  absl::StatusOr<double> SecondsBetween(DeviceEvent& from, DeviceEvent& to) override;

  absl::Status Zero(void* memory, int64_t bytes) override {
    CAPSTAN_RETURN_IF_ERROR(CheckCount("bytes", bytes, INT64_MAX));
    if (bytes == 0) return absl::OkStatus();
    CAPSTAN_RETURN_IF_ERROR(device_->Enter());
    CAPSTAN_CUDA_CHECK(cudaMemsetAsync(memory, 0, static_cast<size_t>(bytes), device_->stream()),
                       absl::StrCat("clearing ", bytes, " bytes"));
    return absl::OkStatus();
  }

  // ---------------------------------------------------------------- CudaBackend
  absl::StatusOr<CudaDeviceInfo> Info() override;

  absl::Status Cast(const CastArgs& args) override { return CastOn(Stream::kCompute, args); }
  absl::Status Update(const UpdateArgs& args) override;
  absl::Status Norm(const NormArgs& args) override;
  absl::Status Quantize(const QuantizeArgs& args) override;
  absl::Status Dequantize(const DequantizeArgs& args) override;
  absl::Status SelectTopK(const TopKArgs& args) override;

 private:
  absl::StatusOr<std::unique_ptr<CudaPlan>> PlanOf(const OpSignature& signature) {
    if (signature.desc.n == 0) return MakeOwnPlan(signature, *device_);
    switch (signature.desc.kind) {
      case OpKind::kConvolutionForward:
      case OpKind::kConvolutionBackwardData:
      case OpKind::kConvolutionBackwardWeights:
        return convolutions_.Prepare(signature);
      case OpKind::kFullyConnectedForward:
      case OpKind::kFullyConnectedBackwardData:
      case OpKind::kFullyConnectedBackwardWeights:
        return fully_connected_.Prepare(signature);
      default:
        return MakeOwnPlan(signature, *device_);
    }
  }

  absl::Status CastOn(Stream stream, const CastArgs& args);

  // Checks the count and the arrays of an own operation, and enters the device.
  absl::Status Ready(const char* op, int64_t n, int64_t n_max,
                     std::initializer_list<std::pair<const char*, const void*>> arrays) {
    if (const absl::Status status = CheckCount("n", n, n_max); !status.ok()) {
      return Annotate(status, op);
    }
    for (const auto& [name, pointer] : arrays) {
      CAPSTAN_RETURN_IF_ERROR(CheckPointer(op, name, pointer, n));
    }
    return device_->Enter();
  }

  // Declared before the planners, which are therefore freed first: their plans use the device.
  const std::unique_ptr<Device> device_;
  ConvolutionPlanner convolutions_;
  FullyConnectedPlanner fully_connected_;
};

absl::StatusOr<std::unique_ptr<Collective>> CudaBackendImpl::Join(
    absl::Span<DeviceBackend* const> members) {
  std::vector<Device*> devices;
  for (DeviceBackend* const member : members) {
    auto* const mine = dynamic_cast<CudaBackendImpl*>(member);
    if (mine == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat(member->Label(), " is another backend's"));
    }
    Device* const device = mine->device_.get();
    if (std::any_of(devices.begin(), devices.end(), [device](const Device* other) {
          return other->options().device == device->options().device;
        })) {
      return absl::InvalidArgumentError(absl::StrCat(mine->Label(), " is joined twice"));
    }
    devices.push_back(device);
  }
  if (devices.empty() || devices[0] != device_.get()) {
    return absl::InvalidArgumentError(
        absl::StrCat(Label(), " joins ", members.size(), " GPUs, expected it first"));
  }
  return MakeNcclCollective(std::move(devices));
}

absl::StatusOr<DeviceMemoryInfo> CudaBackendImpl::Memory() {
  CAPSTAN_RETURN_IF_ERROR(device_->Enter());
  size_t free = 0;
  size_t total = 0;
  CAPSTAN_CUDA_CHECK(cudaMemGetInfo(&free, &total), "asking for the GPU's memory");
  return DeviceMemoryInfo{static_cast<int64_t>(free), static_cast<int64_t>(total)};
}

absl::Status CudaBackendImpl::Convert(Stream stream, const TensorView& from, const TensorView& to) {
  CAPSTAN_ASSIGN_OR_RETURN(const Number from_type, NumberOf(from.dtype));
  CAPSTAN_ASSIGN_OR_RETURN(const Number to_type, NumberOf(to.dtype));
  if (from.count != to.count) {
    return absl::InvalidArgumentError(
        absl::StrCat("converting ", from.count, " values to ", to.count, ", expected as many"));
  }
  return CastOn(
      stream, {.n = from.count, .in = from.data, .out = to.data, .from = from_type, .to = to_type});
}

absl::Status CudaBackendImpl::LookUp(Stream stream, const void* from, const float* table,
                                     int64_t channels, const TensorView& to) {
  if (channels < 1 || channels > INT32_MAX) {
    return absl::InvalidArgumentError(
        absl::StrCat("look up: channels is ", channels, ", expected 1 or more"));
  }
  CAPSTAN_ASSIGN_OR_RETURN(const Number number, NumberOf(to.dtype));
  CAPSTAN_RETURN_IF_ERROR(
      Ready("look up", to.count, INT32_MAX, {{"from", from}, {"table", table}, {"to", to.data}}));
  const Element type = number == Number::kBf16   ? Element::kBf16
                       : number == Number::kFp16 ? Element::kFp16
                                                 : Element::kFloat;
  const LookUpArgs args = {.type = type,
                           .n = to.count,
                           .from = static_cast<const uint8_t*>(from),
                           .table = table,
                           .channels = static_cast<int>(channels),
                           .to = to.data};
  CAPSTAN_CUDA_CHECK(LaunchLookUp(args, device_->stream(stream)), "launching look up");
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<DeviceEvent>> CudaBackendImpl::MakeEvent(EventUse use) {
  CAPSTAN_RETURN_IF_ERROR(device_->Enter());
  cudaEvent_t event = nullptr;
  const unsigned flags = use == EventUse::kTiming ? kTimedEvent : kOrderEvent;
  CAPSTAN_CUDA_CHECK(cudaEventCreateWithFlags(&event, flags), "making an event");
  return std::unique_ptr<DeviceEvent>(std::make_unique<CudaEvent>(*device_, event));
}

absl::Status CudaBackendImpl::Record(DeviceEvent& event, Stream stream) {
  CAPSTAN_ASSIGN_OR_RETURN(const cudaEvent_t mine, EventOf(event));
  CAPSTAN_RETURN_IF_ERROR(device_->Enter());
  CAPSTAN_CUDA_CHECK(cudaEventRecord(mine, device_->stream(stream)), "recording an event");
  return absl::OkStatus();
}

absl::Status CudaBackendImpl::Wait(Stream stream, DeviceEvent& event) {
  CAPSTAN_ASSIGN_OR_RETURN(const cudaEvent_t mine, EventOf(event));
  CAPSTAN_RETURN_IF_ERROR(device_->Enter());
  CAPSTAN_CUDA_CHECK(cudaStreamWaitEvent(device_->stream(stream), mine, 0), "awaiting an event");
  return absl::OkStatus();
}

absl::Status CudaBackendImpl::Await(DeviceEvent& event) {
  CAPSTAN_ASSIGN_OR_RETURN(const cudaEvent_t mine, EventOf(event));
  CAPSTAN_RETURN_IF_ERROR(device_->Enter());
  return device_->Await(mine);
}

absl::StatusOr<double> CudaBackendImpl::SecondsBetween(DeviceEvent& from, DeviceEvent& to) {
  CAPSTAN_ASSIGN_OR_RETURN(const cudaEvent_t first, EventOf(from));
  CAPSTAN_ASSIGN_OR_RETURN(const cudaEvent_t second, EventOf(to));
  CAPSTAN_RETURN_IF_ERROR(device_->Enter());
  float milliseconds = 0.0f;
  const cudaError_t error = cudaEventElapsedTime(&milliseconds, first, second);
  if (error != cudaSuccess) {
    return absl::FailedPreconditionError(FromCuda(error, "the time between two events").message());
  }
  return static_cast<double>(milliseconds) / 1000;
}

absl::StatusOr<CudaDeviceInfo> CudaBackendImpl::Info() {
  CAPSTAN_RETURN_IF_ERROR(device_->Enter());
  const int device = device_->options().device;
  cudaDeviceProp properties{};
  CAPSTAN_CUDA_CHECK(cudaGetDeviceProperties(&properties, device), "asking for the GPU");
  CAPSTAN_ASSIGN_OR_RETURN(const DeviceMemoryInfo memory, Memory());
  CudaDeviceInfo info;
  info.name = properties.name;
  info.device = device;
  info.capability_major = properties.major;
  info.capability_minor = properties.minor;
  info.multiprocessors = properties.multiProcessorCount;
  info.memory_bytes = memory.total_bytes;
  info.memory_free_bytes = memory.free_bytes;
  cudaDriverGetVersion(&info.driver);
  cudaRuntimeGetVersion(&info.runtime);
  info.cudnn = static_cast<int64_t>(cudnnGetVersion());
  info.cublaslt = static_cast<int64_t>(cublasLtGetVersion());
  return info;
}

absl::Status CudaBackendImpl::CastOn(Stream stream, const CastArgs& a) {
  CAPSTAN_RETURN_IF_ERROR(Ready("cast", a.n, INT64_MAX, {{"in", a.in}, {"out", a.out}}));
  CAPSTAN_CUDA_CHECK(LaunchCast(a, device_->stream(stream)), "launching cast");
  return absl::OkStatus();
}

absl::Status CudaBackendImpl::Update(const UpdateArgs& a) {
  CAPSTAN_RETURN_IF_ERROR(
      Ready("update", a.n, INT64_MAX, {{"weights", a.weights}, {"gradient", a.gradient}}));
  const int slots = StateSlotsOf(a.rule);
  if (slots > 0) CAPSTAN_RETURN_IF_ERROR(CheckPointer("update", "s0", a.s0, a.n));
  if (slots > 1) CAPSTAN_RETURN_IF_ERROR(CheckPointer("update", "s1", a.s1, a.n));
  CAPSTAN_CUDA_CHECK(LaunchUpdate(a, device_->stream()), "launching update");
  return absl::OkStatus();
}

absl::Status CudaBackendImpl::Norm(const NormArgs& a) {
  CAPSTAN_RETURN_IF_ERROR(Ready("norm", a.n, INT64_MAX, {{"values", a.values}}));
  CAPSTAN_RETURN_IF_ERROR(CheckPointer("norm", "result", a.result, 1));
  CAPSTAN_RETURN_IF_ERROR(device_->ReserveWorkspace(NormScratchBytes()));
  CAPSTAN_CUDA_CHECK(LaunchNorm(a, device_->workspace(), device_->stream()), "launching norm");
  return absl::OkStatus();
}

absl::Status CudaBackendImpl::Quantize(const QuantizeArgs& a) {
  CAPSTAN_RETURN_IF_ERROR(Ready("quantize", a.n, kOperandElementsMax,
                                {{"gradient", a.gradient},
                                 {"residual", a.residual},
                                 {"codes", a.codes},
                                 {"scales", a.scales}}));
  CAPSTAN_CUDA_CHECK(LaunchQuantize(a, device_->stream()), "launching quantize");
  return absl::OkStatus();
}

absl::Status CudaBackendImpl::Dequantize(const DequantizeArgs& a) {
  CAPSTAN_RETURN_IF_ERROR(Ready("dequantize", a.n, kOperandElementsMax,
                                {{"codes", a.codes}, {"scales", a.scales}, {"values", a.values}}));
  CAPSTAN_CUDA_CHECK(LaunchDequantize(a, device_->stream()), "launching dequantize");
  return absl::OkStatus();
}

absl::Status CudaBackendImpl::SelectTopK(const TopKArgs& a) {
  CAPSTAN_RETURN_IF_ERROR(Ready("top-k", a.n, kOperandElementsMax,
                                {{"gradient", a.gradient}, {"residual", a.residual}}));
  if (const absl::Status status = CheckCount("k", a.k, a.n); !status.ok()) {
    return Annotate(status, "top-k");
  }
  CAPSTAN_RETURN_IF_ERROR(CheckPointer("top-k", "indices", a.indices, a.k));
  CAPSTAN_RETURN_IF_ERROR(CheckPointer("top-k", "values", a.values, a.k));
  CAPSTAN_RETURN_IF_ERROR(device_->ReserveWorkspace(TopKScratchBytes(a.n)));
  CAPSTAN_CUDA_CHECK(LaunchTopK(a, device_->workspace(), device_->stream()), "launching top-k");
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<CudaBackend>> MakeCudaBackend(const CudaOptions& options) {
  CAPSTAN_ASSIGN_OR_RETURN(std::unique_ptr<Device> device, Device::Open(options));
  return std::unique_ptr<CudaBackend>(std::make_unique<CudaBackendImpl>(std::move(device)));
}

}  // namespace capstan::kernels::cuda
