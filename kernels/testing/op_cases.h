// Cases on which tests compare backends with the reference: operands, valid inputs, and windows of
// awkward sizes.
//
// Thread safety: values and pure functions.
#ifndef CAPSTAN_KERNELS_TESTING_OP_CASES_H_
#define CAPSTAN_KERNELS_TESTING_OP_CASES_H_

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "common/random/philox.h"
#include "kernels/activation.h"
#include "kernels/op_check.h"
#include "kernels/tensor_view.h"

namespace capstan::kernels {

// The operands of one run in plain vectors. Each vector holds fp32 or int32, as its type says.
struct Operands {
  std::vector<std::vector<float>> values;
  std::vector<DataType> types;

  void Add(std::vector<float> value, DataType type) {
    values.push_back(std::move(value));
    types.push_back(type);
  }
  std::vector<TensorView> Views() {
    std::vector<TensorView> views;
    for (size_t i = 0; i < values.size(); ++i) {
      views.push_back({values[i].data(), static_cast<int64_t>(values[i].size()), types[i]});
    }
    return views;
  }
};

inline std::vector<float> Uniform(uint64_t key, int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = 2.0f * ToUnitFloat(PhiloxWord(key, i)) - 1.0f;
  }
  return values;
}

// Makes valid inputs. Numbers are uniform in [-1, 1), labels, indices, rows and variances are in
// their ranges, and keys have any bits.
inline Operands MakeInputs(const OpSignature& signature) {
  const OpDesc& d = signature.desc;
  Operands inputs;
  for (int i = 0; i < signature.input_count; ++i) {
    const Operand& operand = signature.inputs[static_cast<size_t>(i)];
    const std::string name = operand.name;
    std::vector<float> values = Uniform(MixKey(17, static_cast<uint64_t>(i)), operand.count);
    for (size_t j = 0; j < values.size(); ++j) {
      const uint32_t word = PhiloxWord(99, j);
      if (name == "rows") values[j] = static_cast<float>(word % static_cast<uint64_t>(d.rows));
      if (name == "variance" || name == "mean_square") values[j] = 0.1f + std::fabs(values[j]);
      if (operand.dtype == DataType::kInt32) {
        const auto number =
            static_cast<int32_t>(name == "key" ? word : word % static_cast<uint64_t>(d.c));
        std::memcpy(&values[j], &number, 4);
      }
    }
    inputs.Add(std::move(values), operand.dtype);
  }
  return inputs;
}

// Batch norm's backward op with ReLU and no addend computes again which sums were positive. This
// function sets dy to 0 where rounding could decide that, so that fp32 must agree with the
// reference. With inputs of MakeInputs, sums are below 10 and their rounding errors below a tenth
// of the bound.
inline void ClearGradientsNearZero(const OpDesc& d, Operands& inputs) {
  if (d.kind != OpKind::kBatchNormBackward || !d.fuse_relu || d.has_addend) return;
  const std::vector<float>& x = inputs.values[0];
  const auto of_channel = [&](size_t input, size_t i) {
    return double{inputs.values[input][i % static_cast<size_t>(d.c)]};
  };
  for (size_t i = 0; i < x.size(); ++i) {
    const double deviation = std::sqrt(of_channel(4, i) + double{d.epsilon});
    const double normal = (double{x[i]} - of_channel(3, i)) / deviation;
    const double sum = normal * of_channel(2, i) + of_channel(5, i);
    if (std::fabs(sum) < 1e-4) inputs.values[1][i] = 0.0f;
  }
}

// Fills outputs with NaN, so that a test notices an element that an op does not write.
inline Operands MakeOutputs(const OpSignature& signature) {
  Operands outputs;
  for (int i = 0; i < signature.output_count; ++i) {
    const Operand& operand = signature.outputs[static_cast<size_t>(i)];
    outputs.Add(std::vector<float>(static_cast<size_t>(operand.count),
                                   std::numeric_limits<float>::quiet_NaN()),
                operand.dtype);
  }
  return outputs;
}

struct WindowCase {
  int64_t n, h, w, c, out_c, kernel, stride, padding;
};

inline OpDesc WindowDesc(OpKind kind, const WindowCase& t, bool bias, bool relu) {
  OpDesc d;
  d.kind = kind;
  d.n = t.n;
  d.h = t.h;
  d.w = t.w;
  d.c = t.c;
  d.out_c = t.out_c;
  d.kernel = t.kernel;
  d.stride = t.stride;
  d.padding = t.padding;
  d.out_h = (t.h + 2 * t.padding - t.kernel) / t.stride + 1;
  d.out_w = (t.w + 2 * t.padding - t.kernel) / t.stride + 1;
  d.has_bias = bias;
  d.fuse_relu = relu;
  return d;
}

// The operations that batch norm's op includes, and whether its gradient comes in two parts.
struct NormFusion {
  bool relu = false, addend = false, dy2 = false;
};
inline constexpr NormFusion kNormFusions[] = {
    {false, false}, {true, false}, {true, true}, {true, true, true}};

inline OpDesc BatchNormDesc(OpKind kind, const WindowCase& t, NormFusion fusion) {
  OpDesc d = WindowDesc(kind, t, false, fusion.relu);
  d.has_addend = fusion.addend;
  d.has_dy2 = fusion.dy2 && kind == OpKind::kBatchNormBackward;
  d.epsilon = 1e-3f;
  return d;
}

// Batches of 0, 1 and odd sizes; one or many channels, below, at and above a vector and a panel of
// each instruction set (4, 8, 16, 64 floats); windows that do or do not overlap or cover the image.
inline constexpr WindowCase kWindowCases[] = {
    {0, 5, 5, 3, 4, 3, 1, 1},     {1, 1, 1, 1, 1, 1, 1, 0},    {2, 28, 28, 1, 20, 5, 1, 0},
    {3, 12, 12, 20, 50, 5, 1, 0}, {1, 7, 9, 3, 17, 3, 1, 1},   {2, 8, 8, 16, 32, 3, 2, 1},
    {2, 9, 6, 33, 65, 3, 2, 1},   {1, 11, 5, 8, 130, 2, 3, 0}, {3, 4, 4, 64, 64, 1, 1, 0},
    {2, 8, 8, 16, 32, 1, 2, 0},   {1, 6, 7, 5, 9, 4, 2, 3},    {2, 13, 13, 2, 5, 5, 4, 2},
    {5, 3, 3, 40, 24, 3, 1, 0},   {1, 10, 1, 7, 3, 1, 1, 0},
};

inline OpDesc MatrixDesc(OpKind kind, int64_t n, int64_t c, int64_t out_c) {
  OpDesc d;
  d.kind = kind;
  d.n = n;
  d.c = c;
  d.out_c = out_c;
  return d;
}

// Both passes of each activation, for [n, c].
inline std::vector<OpDesc> ActivationDescs(int64_t n, int64_t c) {
  std::vector<OpDesc> descs;
  for (const char* const name : kActivationNames) {
    for (const OpKind kind : {OpKind::kActivationForward, OpKind::kActivationBackward}) {
      descs.push_back(MatrixDesc(kind, n, c, 1));
      descs.back().activation = ActivationNamed(name);
    }
  }
  return descs;
}

}  // namespace capstan::kernels

#endif  // CAPSTAN_KERNELS_TESTING_OP_CASES_H_
