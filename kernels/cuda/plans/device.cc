#include "kernels/cuda/plans/device.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "kernels/cuda/element_rules.h"
#include "kernels/cuda/plans/status.h"

namespace capstan::kernels::cuda {
namespace {

constexpr int kCapabilityMin = 8;  // The lowest that build_defs/cuda.bzl compiles for.
constexpr int64_t kWorkspaceBytesMin = int64_t{1} << 20;
// A thread that sleeps takes some 50 microseconds to wake up. So a wait is polled at first: for the
// time of a short step, unless one of the last kRecentWaits took longer.
constexpr std::chrono::microseconds kShortStep{1000}, kPolledInLongSteps{100};
constexpr int kRecentWaits = 100;

// 13020 -> "13.2".
std::string VersionText(int version) {
  return absl::StrCat(version / 1000, ".", version % 1000 / 10);
}

// Returns how many GPUs the driver shows, >= 1.
absl::StatusOr<int> CountDevices() {
  int driver = 0;
  int runtime = 0;
  cudaDriverGetVersion(&driver);  // Gives 0 if there is no driver.
  cudaRuntimeGetVersion(&runtime);
  int devices = 0;
  const cudaError_t error = cudaGetDeviceCount(&devices);
  if (driver == 0) {
    return absl::UnavailableError(absl::StrCat("no CUDA driver (libcuda.so.1) on this machine (",
                                               cudaGetErrorName(error), ")"));
  }
  if (error == cudaErrorInsufficientDriver) {
    return absl::FailedPreconditionError(
        absl::StrCat("the CUDA driver is too old: it supports CUDA ", VersionText(driver),
                     ", expected at least ", VersionText(runtime / 1000 * 1000)));
  }
  if (error == cudaErrorNoDevice || (error == cudaSuccess && devices == 0)) {
    return absl::UnavailableError("the CUDA driver shows no GPU");
  }
  CAPSTAN_CUDA_CHECK(error, "counting GPUs");
  return devices;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Device>> Device::Open(const CudaOptions& options) {
  if (options.workspace_bytes_max < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("workspace_bytes_max is ", options.workspace_bytes_max, ", expected >= 0"));
  }
  std::unique_ptr<Device> device(new Device(options));
  CAPSTAN_RETURN_IF_ERROR(device->CheckCard());
  CAPSTAN_RETURN_IF_ERROR(device->Initialize());
  CAPSTAN_RETURN_IF_ERROR(device->OpenPlans());
  return device;
}

absl::Status Device::CheckCard() {
  CAPSTAN_ASSIGN_OR_RETURN(const int devices, CountDevices());
  if (options_.device < 0 || options_.device >= devices) {
    return absl::InvalidArgumentError(
        absl::StrCat("device is ", options_.device, ", expected 0 <= device < ", devices));
  }
  int major = 0;
  CAPSTAN_CUDA_CHECK(
      cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, options_.device),
      "asking for the compute capability");
  if (major < kCapabilityMin) {
    return absl::FailedPreconditionError(absl::StrCat("GPU ", options_.device,
                                                      " has compute capability ", major,
                                                      ".x, expected at least ", kCapabilityMin));
  }
  return absl::OkStatus();
}

absl::Status Device::Initialize() {
  CAPSTAN_RETURN_IF_ERROR(Enter());
  for (cudaStream_t& stream : streams_) {
    CAPSTAN_CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
                       "creating a stream");
  }
  CAPSTAN_CUDA_CHECK(cudaEventCreateWithFlags(&stream_end_, kOrderEvent), "making an event");
  CAPSTAN_CUDNN_CHECK(cudnnCreate(&cudnn_), "creating cuDNN's handle");
  CAPSTAN_CUDNN_CHECK(cudnnSetStream(cudnn_, stream()), "setting cuDNN's stream");
  CAPSTAN_CUBLAS_CHECK(cublasLtCreate(&cublaslt_), "creating cuBLASLt's handle");
  constexpr int64_t kStripsBytes = kStripsMax * int64_t{sizeof(unsigned)};
  CAPSTAN_ASSIGN_OR_RETURN(strips_done_, Allocate(kStripsBytes, "counts of blocks"));
  CAPSTAN_CUDA_CHECK(cudaMemsetAsync(strips_done_.get(), 0, kStripsBytes, stream()),
                     "clearing the counts of blocks");
  CAPSTAN_ASSIGN_OR_RETURN(faults_, Allocate(sizeof(Faults), "fault words"));
  void* seen = nullptr;
  CAPSTAN_CUDA_CHECK(cudaMallocHost(&seen, sizeof(Faults)), "allocating pinned memory");
  faults_seen_ = new (seen) Faults;
  CAPSTAN_CUDA_CHECK(
      cudaMemcpyAsync(faults_.get(), seen, sizeof(Faults), cudaMemcpyHostToDevice, stream()),
      "clearing the fault words");
  return ReserveWorkspace(kWorkspaceBytesMin);
}

absl::Status Device::OpenPlans() {
  if (options_.plans_folder.empty() || options_.plan_choice != PlanChoice::kMeasured) {
    return absl::OkStatus();
  }
  cudaDeviceProp card{};
  CAPSTAN_CUDA_CHECK(cudaGetDeviceProperties(&card, options_.device), "asking for the GPU");
  const std::string origin = absl::StrCat(card.name, " (", card.major, ".", card.minor, "), cuDNN ",
                                          cudnnGetVersion(), ", cuBLASLt ", cublasLtGetVersion());
  plans_ = std::make_unique<PlanStore>(options_.plans_folder, origin, options_.say);
  return absl::OkStatus();
}

Device::~Device() {
  if (!Enter().ok()) return;  // The context is gone, with everything in it.
  for (const cudaStream_t stream : streams_) {
    if (stream != nullptr) cudaStreamSynchronize(stream);
  }
  workspace_.reset();
  strips_done_.reset();
  faults_.reset();
  if (faults_seen_ != nullptr) cudaFreeHost(faults_seen_);
  if (cublaslt_ != nullptr) cublasLtDestroy(cublaslt_);
  if (cudnn_ != nullptr) cudnnDestroy(cudnn_);
  if (stream_end_ != nullptr) cudaEventDestroy(stream_end_);
  for (const cudaStream_t stream : streams_) {
    if (stream != nullptr) cudaStreamDestroy(stream);
  }
}

absl::Status Device::Enter() const {
  CAPSTAN_CUDA_CHECK(cudaSetDevice(options_.device),
                     absl::StrCat("entering GPU ", options_.device));
  return absl::OkStatus();
}

absl::StatusOr<DeviceMemory> Device::Allocate(int64_t bytes, absl::string_view what) const {
  if (bytes < 0) {
    return absl::InvalidArgumentError(absl::StrCat(what, " is ", bytes, " bytes, expected >= 0"));
  }
  void* memory = nullptr;
  const cudaError_t error = cudaMalloc(&memory, static_cast<size_t>(std::max<int64_t>(bytes, 1)));
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // Clears it: the next launch would report it.
    size_t free = 0;
    size_t total = 0;
    cudaMemGetInfo(&free, &total);
    return absl::ResourceExhaustedError(absl::StrCat(what, " needs ", bytes, " bytes on GPU ",
                                                     options_.device, ", free are ", free, " of ",
                                                     total));
  }
  CAPSTAN_CUDA_CHECK(error, absl::StrCat("allocating ", what));
  return DeviceMemory(memory);
}

absl::Status Device::ReserveWorkspace(int64_t bytes) {
  bytes = std::max(bytes, workspace_bytes_);
  if (workspace_ != nullptr && bytes == workspace_bytes_) return absl::OkStatus();
  if (capturing_) {
    return absl::FailedPreconditionError("no op can be prepared while work is being recorded");
  }
  // cudaFree of the old workspace waits for the device, so running work is done with it. Graphs
  // that hold it keep it in memory.
  std::shared_ptr<void> before = std::move(workspace_);
  if (before.use_count() == 1) before.reset();
  absl::StatusOr<DeviceMemory> memory = Allocate(bytes, "the workspace");
  const absl::Status status = memory.status();
  if (status.ok()) {
    workspace_ = std::shared_ptr<void>(*std::move(memory));
    workspace_bytes_ = bytes;
    return status;
  }
  if (before == nullptr && workspace_bytes_ > 0) {
    memory = Allocate(workspace_bytes_, "the workspace");
    if (!memory.ok()) return memory.status();
    before = std::shared_ptr<void>(*std::move(memory));
  }
  workspace_ = std::move(before);
  return status;
}

Faults* Device::ReportLabels(int64_t classes) {
  classes_ = classes;
  return static_cast<Faults*>(faults_.get());
}

Faults* Device::ReportRows(int64_t rows) {
  rows_ = rows;
  return static_cast<Faults*>(faults_.get());
}

absl::Status Device::Synchronize() {
  if (capturing_) {
    return absl::FailedPreconditionError("cannot wait while work is being recorded");
  }
  for (const cudaStream_t stream : streams_) CAPSTAN_RETURN_IF_ERROR(AwaitStream(stream));
  return classes_ == 0 && rows_ == 0 ? absl::OkStatus() : TakeFaults();
}

absl::Status Device::Check() const {
  CAPSTAN_RETURN_IF_ERROR(Enter());
  for (const cudaStream_t stream : streams_) {
    const cudaError_t error = cudaStreamQuery(stream);
    if (error == cudaErrorNotReady) {
      cudaGetLastError();  // Clears it: a busy stream is no error.
    } else {
      CAPSTAN_CUDA_CHECK(error, "looking at a stream");
    }
  }
  return absl::OkStatus();
}

absl::Status Device::Await(cudaEvent_t event) {
  return WaitBy([event] { return cudaEventSynchronize(event); },
                [event] { return cudaEventQuery(event); });
}

absl::Status Device::AwaitStream(cudaStream_t stream) {
  const auto wait = [this, stream] {
    const cudaError_t error = cudaEventRecord(stream_end_, stream);
    return error == cudaSuccess ? cudaEventSynchronize(stream_end_) : error;
  };
  return WaitBy(wait, [stream] { return cudaStreamQuery(stream); });
}

absl::Status Device::WaitBy(const std::function<cudaError_t()>& wait,
                            const std::function<cudaError_t()>& query) {
  const auto begin = std::chrono::steady_clock::now();
  const auto waited = [begin] { return std::chrono::steady_clock::now() - begin; };
  const bool in_long_steps = waits_since_long_ < kRecentWaits;
  ++waits_since_long_;
  for (;;) {
    const cudaError_t error = query();
    if (error != cudaErrorNotReady) return FromCuda(error, "waiting for the GPU");
    cudaGetLastError();  // Clears it: a busy stream is no error.
    if (watch_ != nullptr) {
      CAPSTAN_RETURN_IF_ERROR(watch_());
      CAPSTAN_RETURN_IF_ERROR(Enter());  // The watch enters other devices.
    } else if (waited() > (in_long_steps ? kPolledInLongSteps : kShortStep)) {
      break;
    }
    std::this_thread::yield();
  }
  CAPSTAN_CUDA_CHECK(wait(), "waiting for the GPU");
  if (waited() > kShortStep) waits_since_long_ = 0;
  return absl::OkStatus();
}

absl::Status Device::TakeFaults() {
  CAPSTAN_CUDA_CHECK(cudaMemcpyAsync(faults_seen_, faults_.get(), sizeof(Faults),
                                     cudaMemcpyDeviceToHost, stream()),
                     "reading the fault words");
  CAPSTAN_CUDA_CHECK(cudaStreamSynchronize(stream()), "waiting for the GPU");
  const Faults seen = *faults_seen_;
  if (seen.label == kNoFault && seen.row == kNoFault) return absl::OkStatus();
  *faults_seen_ = Faults{};
  CAPSTAN_CUDA_CHECK(cudaMemcpyAsync(faults_.get(), faults_seen_, sizeof(Faults),
                                     cudaMemcpyHostToDevice, stream()),
                     "clearing the fault words");
  CAPSTAN_CUDA_CHECK(cudaStreamSynchronize(stream()), "waiting for the GPU");
  if (seen.label != kNoFault) {
    return absl::InvalidArgumentError(absl::StrCat("label ", seen.label >> 32, " is ",
                                                   static_cast<int32_t>(seen.label),
                                                   ", expected 0 <= label < ", classes_));
  }
  return absl::InvalidArgumentError(absl::StrCat("row number ", seen.row >> 32, " is ",
                                                 FloatOf(static_cast<uint32_t>(seen.row)),
                                                 ", expected a whole number, 0 <= row < ", rows_));
}

}  // namespace capstan::kernels::cuda
