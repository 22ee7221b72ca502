#include "kernels/cuda/emulation/libraries/tensor_values.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/cuda/emulation/libraries/host_numbers.h"

namespace capstan::kernels::cuda::emulation {
namespace {

// Calls visit(type), a null pointer to the C++ type.
template <typename Visit>
void WithType(cudnnDataType_t type, const Visit& visit) {
  if (type == CUDNN_DATA_HALF) return visit(static_cast<__half*>(nullptr));
  if (type == CUDNN_DATA_BFLOAT16) return visit(static_cast<__nv_bfloat16*>(nullptr));
  visit(static_cast<float*>(nullptr));
}

// Calls visit(element's offset in memory, its index in [n, h, w, c]) for each element.
template <typename Visit>
void ForEach(const Tensor& t, const Visit& visit) {
  int64_t index = 0;
  for (int64_t n = 0; n < t.dims[0]; ++n) {
    for (int64_t h = 0; h < t.dims[2]; ++h) {
      for (int64_t w = 0; w < t.dims[3]; ++w) {
        const int64_t offset = n * t.strides[0] + h * t.strides[2] + w * t.strides[3];
        for (int64_t c = 0; c < t.dims[1]; ++c) visit(offset + c * t.strides[1], index++);
      }
    }
  }
}

}  // namespace

int64_t Tensor::Bytes() const {
  int64_t last = 0;
  for (size_t i = 0; i < dims.size(); ++i) last += (dims[i] - 1) * strides[i];
  return (last + 1) * static_cast<int64_t>(BytesOf(type));
}

size_t BytesOf(cudnnDataType_t type) {
  switch (type) {
    case CUDNN_DATA_FLOAT:
      return 4;
    case CUDNN_DATA_HALF:
    case CUDNN_DATA_BFLOAT16:
      return 2;
    default:
      return 0;
  }
}

std::vector<float> Load(const Tensor& tensor, const void* memory) {
  std::vector<float> values(static_cast<size_t>(tensor.Count()));
  WithType(tensor.type, [&]<typename T>(T*) {
    const T* const from = static_cast<const T*>(memory);
    ForEach(tensor, [&](int64_t offset, int64_t index) {
      values[static_cast<size_t>(index)] = ToFloat(from[offset]);
    });
  });
  return values;
}

void Store(const Tensor& tensor, const std::vector<float>& values, void* memory) {
  WithType(tensor.type, [&]<typename T>(T*) {
    T* const to = static_cast<T*>(memory);
    ForEach(tensor, [&](int64_t offset, int64_t index) {
      to[offset] = FromFloat<T>(values[static_cast<size_t>(index)]);
    });
  });
}

void Round(cudnnDataType_t type, std::vector<float>& values) {
  WithType(type, [&]<typename T>(T*) {
    for (float& value : values) value = ToFloat(FromFloat<T>(value));
  });
}

}  // namespace capstan::kernels::cuda::emulation
