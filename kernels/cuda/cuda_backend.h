// CudaBackend: a Backend on one NVIDIA GPU, and what a trainer needs of the card besides ops.
//
//   absl::StatusOr<std::unique_ptr<CudaBackend>> gpu = OpenCudaBackend({.device = 0});  // loader.h
//
// It lives in the plugin libcapstan_cuda.so; this header and loader.h are all that others see.
//
// Streams: as DeviceBackend's; Run, Convert, Zero, Cast and the like are enqueued on kCompute and
// return at once. Faults in flight surface at Await and Synchronize, labels and row numbers out of
// range at Synchronize.
// In the steady state nothing is allocated: Prepare reserves the workspace that all plans share.
//
// Types. x, y, dx, dy, a, b, weight, logits and dlogits have TensorType(): bf16 in Compute::kBf16,
// fp16 in Compute::kFp16, fp32 otherwise. Everything else (bias, scale, shift, mean, variance,
// probabilities, loss, row numbers and the gradients of parameters) is fp32 in every mode.
// Alignment. Activations (x, y, dx, dy, a, b, logits) of convolutions and fully connected ops begin
// at a multiple of 16 bytes; others and all parameters anywhere (Run copies those that do not).
//
// Thread safety: used by one thread at a time.
#ifndef CAPSTAN_KERNELS_CUDA_CUDA_BACKEND_H_
#define CAPSTAN_KERNELS_CUDA_CUDA_BACKEND_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/device_ops.h"
#include "kernels/device_backend.h"

namespace capstan::kernels::cuda {

// What convolutions and matrix products compute with. Sums are fp32 in all of them.
enum class Compute {
  kFp32,  // fp32 throughout: agrees with the reference to about 1e-5.
  kTf32,  // fp32 operands, products of 10-bit mantissas: 1e-3.
  kBf16,  // bf16 tensors in memory: 1e-2; half the traffic.
  // fp16 tensors in memory: 2e-3; half the traffic. They reach from 6e-8 to 65504: who trains
  // scales the loss.
  kFp16,
};

constexpr DataType TensorTypeOf(Compute compute) {
  return compute == Compute::kBf16   ? DataType::kBfloat16
         : compute == Compute::kFp16 ? DataType::kFloat16
                                     : DataType::kFloat32;
}

// How Prepare chooses among the plans that the libraries offer. Plans without run-to-run bits are
// never taken.
enum class PlanChoice {
  kHeuristic,  // The library's first: the same on every run of this card and library.
  kMeasured,   // The fastest of a few, timed: another run may choose, and round, differently.
};

struct CudaOptions {
  int device = 0;  // Of those that the driver shows (CUDA_VISIBLE_DEVICES).
  Compute compute = Compute::kFp32;
  PlanChoice plan_choice = PlanChoice::kMeasured;
  // Plans that want more are not taken. Good ones for fp32 tensors want as much as x and y have; of
  // ResNet-50 with 256 images of 224x224 up to 1.2 GiB.
  int64_t workspace_bytes_max = int64_t{4} << 30;
  // Where plans that were measured are kept for other processes (plan_store.h); empty: nowhere.
  std::string plans_folder;
  // How long the card works before plans are timed, for each op: else its clock may still rise.
  double warm_up_seconds = 0.2;
  // Told what the user should know and no status says; may be null.
  std::function<void(const std::string&)> say;
};

struct CudaDeviceInfo {
  std::string name;  // "NVIDIA H100 80GB HBM3".
  int device = 0;
  int capability_major = 0, capability_minor = 0;
  int multiprocessors = 0;
  int64_t memory_bytes = 0;
  int64_t memory_free_bytes = 0;  // When asked.
  int driver = 0, runtime = 0;    // As CUDA counts: 13000 is 13.0.
  int64_t cudnn = 0, cublaslt = 0;
};

class CudaBackend : public DeviceBackend {
 public:
  // Errors: kUnavailable  the device does not answer.
  virtual absl::StatusOr<CudaDeviceInfo> Info() = 0;

  // Own operations; see device_ops.h.
  // Errors: kInvalidArgument  a count or a pointer that cannot be; names it.
  virtual absl::Status Cast(const CastArgs& args) = 0;
  virtual absl::Status Update(const UpdateArgs& args) = 0;
  virtual absl::Status Norm(const NormArgs& args) = 0;
  virtual absl::Status Quantize(const QuantizeArgs& args) = 0;
  virtual absl::Status Dequantize(const DequantizeArgs& args) = 0;
  virtual absl::Status SelectTopK(const TopKArgs& args) = 0;
};

}  // namespace capstan::kernels::cuda

#endif  // CAPSTAN_KERNELS_CUDA_CUDA_BACKEND_H_
