// Device: one GPU as the plans see it. It owns the streams, the library handles, the workspace that
// all plans share, and the fault words that kernels set when labels or row numbers are out of
// range. CudaBackend (backend_impl.cc) owns one.
//
// Thread safety: one thread at a time uses it, but for Await (kernels/device_backend.h); a thread
// calls Enter() before any call of CUDA.
#ifndef CAPSTAN_KERNELS_CUDA_PLANS_DEVICE_H_
#define CAPSTAN_KERNELS_CUDA_PLANS_DEVICE_H_

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/own/kernel_types.h"
#include "kernels/cuda/plans/plan_store.h"

namespace capstan::kernels::cuda {

// Device memory that frees itself.
struct CudaFree {
  void operator()(void* memory) const { cudaFree(memory); }
};
using DeviceMemory = std::unique_ptr<void, CudaFree>;

// Flags of events. The host sleeps while it awaits one.
inline constexpr unsigned kTimedEvent = cudaEventBlockingSync;
inline constexpr unsigned kOrderEvent = cudaEventBlockingSync | cudaEventDisableTiming;

class Device {
 public:
  // Errors: those of OpenCudaBackend (loader.h), except those of the plugin's file.
  static absl::StatusOr<std::unique_ptr<Device>> Open(const CudaOptions& options);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const CudaOptions& options() const { return options_; }
  cudaStream_t stream() const { return stream(Stream::kCompute); }
  cudaStream_t stream(Stream which) const { return streams_[static_cast<size_t>(which)]; }
  cudnnHandle_t cudnn() const { return cudnn_; }
  cublasLtHandle_t cublaslt() const { return cublaslt_; }

  // Makes this device the calling thread's current device.
  absl::Status Enter() const;

  // Errors: kResourceExhausted  names `what`, the bytes wanted and the bytes free.
  absl::StatusOr<DeviceMemory> Allocate(int64_t bytes, absl::string_view what) const;

  // Makes the workspace at least `bytes` large. It is scratch for the op that runs; no op keeps
  // anything there. An old workspace stays where it is as long as graphs recorded with it exist.
  // Errors: as Allocate; kFailedPrecondition  work is being recorded.
  absl::Status ReserveWorkspace(int64_t bytes);
  void* workspace() const { return workspace_.get(); }
  std::shared_ptr<void> workspace_owner() const { return workspace_; }

  bool capturing() const { return capturing_; }
  void set_capturing(bool capturing) { capturing_ = capturing; }

  // Null if measured plans are not kept.
  PlanStore* plans() const { return plans_.get(); }

  // Counters in device memory, [kStripsMax]: for each strip, the blocks that have finished their
  // part of it (columns.cuh). All are 0 between launches.
  unsigned* strips_done() const { return static_cast<unsigned*>(strips_done_.get()); }

  // Return the fault words, in device memory, where a kernel reports a label or row number out of
  // range. Synchronize() uses `classes` and `rows` in its message.
  Faults* ReportLabels(int64_t classes);
  Faults* ReportRows(int64_t rows);

  // Sets a function that this device calls again and again while it waits; its error ends the wait.
  // A collective needs it, since this device's work may depend on other devices. Null: the device
  // waits in one call.
  void set_watch(std::function<absl::Status()> watch) { watch_ = std::move(watch); }

  // Checks whether enqueued work has failed so far; does not wait. Errors: those of the work.
  absl::Status Check() const;

  // Wait for the event, or for all work of a stream. Errors: those of the work, and of the watch.
  absl::Status Await(cudaEvent_t event);
  absl::Status AwaitStream(cudaStream_t stream);

  // Waits for all streams.
  // Errors: kInvalidArgument      a label or a row number was out of range; the message names the
  //                               first one; reported once.
  //         kInternal and others  a fault of the work.
  absl::Status Synchronize();

 private:
  explicit Device(const CudaOptions& options) : options_(options) {}
  absl::Status Initialize();
  absl::Status CheckCard();
  absl::Status OpenPlans();
  // Polls `query` until its result is not cudaErrorNotReady. Without a watch it polls for at most
  // kShortStep (device.cc), then sleeps in `wait`.
  absl::Status WaitBy(const std::function<cudaError_t()>& wait,
                      const std::function<cudaError_t()>& query);
  absl::Status TakeFaults();

  const CudaOptions options_;
  std::array<cudaStream_t, kStreamCount> streams_{};
  cudaEvent_t stream_end_ = nullptr;  // Marks the end of the stream that is awaited.
  cudnnHandle_t cudnn_ = nullptr;
  cublasLtHandle_t cublaslt_ = nullptr;
  std::shared_ptr<void> workspace_;  // Shared with the graphs that were recorded with it.
  int64_t workspace_bytes_ = 0;      // The size that prepared plans rely on.
  DeviceMemory strips_done_;
  DeviceMemory faults_;
  Faults* faults_seen_ = nullptr;   // Pinned host memory.
  int64_t classes_ = 0, rows_ = 0;  // The last op that may report set them; 0: none.
  std::unique_ptr<PlanStore> plans_;
  bool capturing_ = false;
  std::function<absl::Status()> watch_;
  std::atomic<int64_t> waits_since_long_ = 0;  // Waits since one that took long.
};

}  // namespace capstan::kernels::cuda

#endif  // CAPSTAN_KERNELS_CUDA_PLANS_DEVICE_H_
