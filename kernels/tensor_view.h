// TensorView: a borrowed, contiguous, row-major array with an element count and a type, but no
// shape; never owns memory.
//
// Images are NHWC. Thread safety: a value; the memory behind it follows its owner's rules.
#ifndef CAPSTAN_KERNELS_TENSOR_VIEW_H_
#define CAPSTAN_KERNELS_TENSOR_VIEW_H_

#include <cstdint>
#include <vector>

namespace capstan::kernels {

using Shape = std::vector<int64_t>;  // Outermost dimension first; every entry >= 0.

// The product of the dimensions; 1 for a scalar (empty shape). REQUIRES: it fits 63 bits.
inline int64_t ElementCount(const Shape& shape) {
  int64_t count = 1;
  for (const int64_t d : shape) count *= d;
  return count;
}

enum class DataType { kFloat32, kInt32, kBfloat16, kFloat16 };

// True for bf16 and fp16.
constexpr bool IsHalf(DataType dtype) {
  return dtype == DataType::kBfloat16 || dtype == DataType::kFloat16;
}
constexpr int64_t BytesOf(DataType dtype) { return IsHalf(dtype) ? 2 : 4; }

// The view is in the backend's memory: host memory for the CPU backends, device memory for CUDA.
struct TensorView {
  void* data = nullptr;  // Null only if the element count is 0.
  int64_t count = 0;     // Elements.
  DataType dtype = DataType::kFloat32;

  float* f32() const { return static_cast<float*>(data); }
  int32_t* i32() const { return static_cast<int32_t*>(data); }
};

inline TensorView ViewOf(float* data, int64_t count) { return {data, count, DataType::kFloat32}; }
inline TensorView ViewOf(int32_t* data, int64_t count) { return {data, count, DataType::kInt32}; }

}  // namespace capstan::kernels

#endif  // CAPSTAN_KERNELS_TENSOR_VIEW_H_
