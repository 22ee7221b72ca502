// The codecs of device_ops.h as plain loops over the rules of element_rules.h: what the kernels are
// compared with, bit for bit.
//
// Thread safety: pure functions.
#ifndef CAPSTAN_TESTS_GPU_HOST_CODECS_H_
#define CAPSTAN_TESTS_GPU_HOST_CODECS_H_

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "kernels/cuda/element_rules.h"

namespace capstan::gpu {

struct Int8Result {
  std::vector<int8_t> codes;
  std::vector<float> scales;
  std::vector<float> residual;
};

inline Int8Result QuantizeOnHost(const std::vector<float>& gradient, std::vector<float> residual) {
  constexpr size_t kBlock = kernels::cuda::kInt8Block;
  Int8Result result;
  result.codes.resize(gradient.size());
  for (size_t begin = 0; begin < gradient.size(); begin += kBlock) {
    const size_t end = std::min(gradient.size(), begin + kBlock);
    uint32_t largest = 0;
    for (size_t i = begin; i < end; ++i) {
      residual[i] = gradient[i] + residual[i];
      largest = std::max(largest, kernels::cuda::MagnitudeKey(residual[i]));
    }
    const bool finite = largest < 0x7f800000u;
    const float scale =
        kernels::cuda::Int8Scale(kernels::cuda::FloatOf(finite ? largest : 0x7fc00000u));
    result.scales.push_back(scale);
    for (size_t i = begin; i < end; ++i) {
      result.codes[i] = kernels::cuda::Int8Code(residual[i], scale);
      residual[i] = residual[i] - kernels::cuda::FromInt8(result.codes[i], scale);
    }
  }
  result.residual = std::move(residual);
  return result;
}

struct TopKResult {
  std::vector<int32_t> indices;
  std::vector<float> values;
  std::vector<float> residual;
};

inline TopKResult SelectTopKOnHost(const std::vector<float>& gradient, std::vector<float> residual,
                                   size_t k) {
  TopKResult result;
  for (size_t i = 0; i < gradient.size(); ++i) residual[i] = gradient[i] + residual[i];
  std::vector<int32_t> order(gradient.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return kernels::cuda::MagnitudeKey(residual[static_cast<size_t>(a)]) >
           kernels::cuda::MagnitudeKey(residual[static_cast<size_t>(b)]);
  });
  order.resize(k);
  std::sort(order.begin(), order.end());
  for (const int32_t i : order) {
    float& value = residual[static_cast<size_t>(i)];
    result.indices.push_back(i);
    result.values.push_back(value);
    value = 0.0f;
  }
  result.residual = std::move(residual);
  return result;
}

}  // namespace capstan::gpu

#endif  // CAPSTAN_TESTS_GPU_HOST_CODECS_H_
