// CudaBackend: a Backend on one NVIDIA GPU, with the operations that a trainer and a server need
// besides ops.
//
//   absl::StatusOr<std::unique_ptr<CudaBackend>> gpu = OpenCudaBackend({.device = 0});  // loader.h
//
// It lives in the plugin libcapstan_cuda.so. Code outside the plugin uses it through this header
// and loader.h.
//
// Streams. DeviceBackend describes them. Run, Zero, Cast and the other own operations enqueue on
// kCompute and return at once. Await and Synchronize return the faults of enqueued work;
// Synchronize also reports labels and row numbers out of range.
// In the steady state it allocates nothing: Prepare reserves the workspace that all plans share.
//
// Types. x, y, dx, dy, dy2, a, b, addend, dsum, weight, logits and dlogits have TensorType(): bf16
// in Compute::kBf16, fp16 in Compute::kFp16, fp32 otherwise. All other numbers (bias, scale, shift,
// mean, variance, probabilities, loss, row numbers and the gradients of parameters) are fp32 in
// every mode.
// Alignment. Images and matrices (x, y, dx, dy) of convolutions and fully connected ops begin at a
// multiple of 16 bytes. Other operands may begin anywhere; Run copies parameters that are not
// aligned.
//
// Thread safety: one thread at a time uses it.
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

// The number formats of tensors and of products in convolutions and matrix products. Sums are fp32
// in all of them. The errors are relative to the reference.
enum class Compute {
  kFp32,  // fp32 throughout: error about 1e-5.
  kTf32,  // fp32 operands, products of 10-bit mantissas: error 1e-3.
  kBf16,  // bf16 tensors in memory: error 1e-2; half the traffic.
  // fp16 tensors in memory: error 2e-3; half the traffic. Their range is 6e-8 to 65504, so a
  // trainer must scale the loss.
  kFp16,
};

constexpr DataType TensorTypeOf(Compute compute) {
  return compute == Compute::kBf16   ? DataType::kBfloat16
         : compute == Compute::kFp16 ? DataType::kFloat16
                                     : DataType::kFloat32;
}

// How Prepare chooses among the plans that the libraries offer. It never takes a plan whose bits
// change from run to run.
enum class PlanChoice {
  kHeuristic,  // The library's first plan: the same on every run of this card and library.
  kMeasured,   // The fastest of a few, by timing: another run may choose, and round, differently.
};

struct CudaOptions {
  int device = 0;  // The index among the GPUs that the driver shows (CUDA_VISIBLE_DEVICES).
  Compute compute = Compute::kFp32;
  PlanChoice plan_choice = PlanChoice::kMeasured;
  // Prepare takes no plan that needs more workspace. Good plans for fp32 tensors need as much
  // memory as x and y: for ResNet-50 with 256 images of 224x224 up to 1.2 GiB.
  int64_t workspace_bytes_max = int64_t{4} << 30;
  // The folder that keeps measured plans for other processes (plan_store.h); empty: none.
  std::string plans_folder;
  // How long the card works for each op before plans are timed. Otherwise its clock may still rise.
  double warm_up_seconds = 0.2;
  // Receives messages for the user that no status carries; may be null.
  std::function<void(const std::string&)> say;
};

struct CudaDeviceInfo {
  std::string name;  // "NVIDIA H100 80GB HBM3".
  int device = 0;
  int capability_major = 0, capability_minor = 0;
  int multiprocessors = 0;
  int64_t memory_bytes = 0;
  int64_t memory_free_bytes = 0;  // At the time of the call.
  int driver = 0, runtime = 0;    // CUDA's version numbers: 13000 is 13.0.
  int64_t cudnn = 0, cublaslt = 0;
};

class CudaBackend : public DeviceBackend {
 public:
  // Errors: kUnavailable  the device does not answer.
  virtual absl::StatusOr<CudaDeviceInfo> Info() = 0;

  // The backend's own operations; see device_ops.h.
  // Errors: kInvalidArgument  a count is out of range or a pointer is null; the message names it.
  virtual absl::Status Cast(const CastArgs& args) = 0;
  virtual absl::Status Update(const UpdateArgs& args) = 0;
  virtual absl::Status Norm(const NormArgs& args) = 0;
  virtual absl::Status Quantize(const QuantizeArgs& args) = 0;
  virtual absl::Status Dequantize(const DequantizeArgs& args) = 0;
  virtual absl::Status SelectTopK(const TopKArgs& args) = 0;
};

}  // namespace capstan::kernels::cuda

#endif  // CAPSTAN_KERNELS_CUDA_CUDA_BACKEND_H_
