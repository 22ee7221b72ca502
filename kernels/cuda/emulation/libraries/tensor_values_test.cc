#include "kernels/cuda/emulation/libraries/tensor_values.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <vector>

namespace capstan::kernels::cuda::emulation::tensor_values_test {
namespace {

// Makes a tensor of 1 x 2 channels x 1 x 2 in planes, with gaps between elements.
Tensor Planes(cudnnDataType_t type) {
  return {.type = type, .dims = {1, 2, 1, 2}, .strides = {20, 10, 5, 2}};
}

TEST_CASE("Tensor values: lie in memory by strides, and dense with channels last on the host",
          "[kernels][cuda][emulation]") {
  const Tensor tensor = Planes(CUDNN_DATA_FLOAT);
  CHECK(tensor.Bytes() == 4 * (10 + 2 + 1));
  std::vector<float> memory(13);
  for (size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<float>(i);
  const std::vector<float> values = Load(tensor, memory.data());
  CHECK(values == std::vector<float>{0, 10, 2, 12});
  Store(tensor, {-1, -2, -3, -4}, memory.data());
  CHECK(memory == std::vector<float>{-1, 1, -3, 3, 4, 5, 6, 7, 8, 9, -2, 11, -4});
}

TEST_CASE("Tensor values: are rounded to their type, ties to even", "[kernels][cuda][emulation]") {
  const float bf16 = std::ldexp(1.0f, -7), fp16 = std::ldexp(1.0f, -10);
  const auto rounded = [](cudnnDataType_t type, float value) {
    std::vector<float> values = {value};
    Round(type, values);
    return values[0];
  };
  CHECK(rounded(CUDNN_DATA_FLOAT, 1 + fp16 / 8) == 1 + fp16 / 8);
  CHECK(rounded(CUDNN_DATA_BFLOAT16, 1 + bf16 / 2) == 1);
  CHECK(rounded(CUDNN_DATA_BFLOAT16, 1 + bf16 * 3 / 2) == 1 + 2 * bf16);
  CHECK(rounded(CUDNN_DATA_HALF, 1 + fp16 / 2) == 1);
  CHECK(rounded(CUDNN_DATA_HALF, 1 + fp16 * 3 / 2) == 1 + 2 * fp16);
  CHECK(std::isinf(rounded(CUDNN_DATA_HALF, 70000)));
  for (const cudnnDataType_t type : {CUDNN_DATA_HALF, CUDNN_DATA_BFLOAT16}) {
    std::vector<uint16_t> memory(13);
    Store(Planes(type), {1.5f, -2, 0, 8}, memory.data());
    CHECK(Load(Planes(type), memory.data()) == std::vector<float>{1.5f, -2, 0, 8});
  }
  CHECK(BytesOf(CUDNN_DATA_INT8) == 0);
}

}  // namespace
}  // namespace capstan::kernels::cuda::emulation::tensor_values_test
