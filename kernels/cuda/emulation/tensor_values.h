// A tensor's values, as memory holds them and as the host computes with them.
//
// Thread safety: pure functions.
#ifndef CAPSTAN_KERNELS_CUDA_EMULATION_TENSOR_VALUES_H_
#define CAPSTAN_KERNELS_CUDA_EMULATION_TENSOR_VALUES_H_

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
  std::array<int64_t, 4> strides{};  // In elements, of the same.
  int64_t alignment = 1;             // Bytes, of its first element.
  bool is_virtual = false;           // Between two operations: never in memory.

  int64_t Count() const { return dims[0] * dims[1] * dims[2] * dims[3]; }
  // From the first element to the end of the last one.
  int64_t Bytes() const;
};

// Bytes of an element; 0 for types that are not emulated (all but fp32, bf16 and fp16).
size_t BytesOf(cudnnDataType_t type);

// Between memory, by the tensor's strides, and dense [n, h, w, c]. REQUIRES: BytesOf its type > 0;
// Store: as many values as the tensor has.
std::vector<float> Load(const Tensor& tensor, const void* memory);
void Store(const Tensor& tensor, const std::vector<float>& values, void* memory);

// Each value as `type` holds it: to the nearest, ties to even.
void Round(cudnnDataType_t type, std::vector<float>& values);

}  // namespace capstan::kernels::cuda::emulation

#endif  // CAPSTAN_KERNELS_CUDA_EMULATION_TENSOR_VALUES_H_
