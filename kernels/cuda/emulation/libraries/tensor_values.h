// Tensor: describes a tensor in memory. Load and Store convert between its values in memory and the
// fp32 values with which the host computes.
//
// Thread safety: pure functions.
#ifndef CAPSTAN_KERNELS_CUDA_EMULATION_LIBRARIES_TENSOR_VALUES_H_
#define CAPSTAN_KERNELS_CUDA_EMULATION_LIBRARIES_TENSOR_VALUES_H_

#include <cudnn.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace capstan::kernels::cuda::emulation {

struct Tensor {
  int64_t id = 0;
  cudnnDataType_t type{};
  std::array<int64_t, 4> dims{};     // n, c, h, w.
  std::array<int64_t, 4> strides{};  // The strides of these, in elements.
  int64_t alignment = 1;             // Alignment of the first element, in bytes.
  bool is_virtual = false;           // It passes between two operations, and is never in memory.

  int64_t Count() const { return dims[0] * dims[1] * dims[2] * dims[3]; }
  // The bytes from the first element to the end of the last one.
  int64_t Bytes() const;
};

// The bytes of an element; 0 for types that are not emulated (all but fp32, bf16 and fp16).
size_t BytesOf(cudnnDataType_t type);

// Convert between memory, laid out by the tensor's strides, and dense [n, h, w, c].
// REQUIRES: BytesOf(tensor.type) > 0; for Store: values.size() == tensor.Count().
std::vector<float> Load(const Tensor& tensor, const void* memory);
void Store(const Tensor& tensor, const std::vector<float>& values, void* memory);

// Rounds each value to the nearest one of `type`, ties to even.
void Round(cudnnDataType_t type, std::vector<float>& values);

}  // namespace capstan::kernels::cuda::emulation

#endif  // CAPSTAN_KERNELS_CUDA_EMULATION_LIBRARIES_TENSOR_VALUES_H_
