#include "common/sparse_models/mlp.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstddef>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/sparse_models/multiply_add.h"

namespace capstan {
namespace {

void AppendTensor(std::string name, std::vector<int64_t> shape, int64_t fan_in,
                  SparseShape* model) {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  const auto bound = static_cast<float>(1.0 / std::sqrt(static_cast<double>(fan_in)));
  model->dense.push_back({.name = std::move(name),
                          .shape = std::move(shape),
                          .offset = model->dense_count,
                          .count = count,
                          .initial = {Initial::Kind::kUniform, bound}});
  model->dense_count += count;
}

}  // namespace

Mlp::Mlp(absl::string_view name, const std::vector<int64_t>& widths, Output output,
         SparseShape* shape) {
  assert(widths.size() >= 2);
  for (size_t i = 0; i + 1 < widths.size(); ++i) {
    Layer layer = {.in = widths[i], .out = widths[i + 1]};
    layer.relu = i + 2 < widths.size() || output == Output::kRelu;
    layer.weight = shape->dense_count;
    AppendTensor(absl::StrCat(name, ".", i, ".weight"), {layer.out, layer.in}, layer.in, shape);
    layer.bias = shape->dense_count;
    AppendTensor(absl::StrCat(name, ".", i, ".bias"), {layer.out}, layer.in, shape);
    layers_.push_back(std::move(layer));
  }
}

const float* Mlp::Forward(int64_t n, const float* in, const float* dense) {
  for (Layer& layer : layers_) {
    transposed_.resize(static_cast<size_t>(layer.in * layer.out));
    const float* weight = dense + layer.weight;
    for (int64_t o = 0; o < layer.out; ++o) {
      for (int64_t i = 0; i < layer.in; ++i) {
        transposed_[static_cast<size_t>(i * layer.out + o)] = weight[o * layer.in + i];
      }
    }
    layer.outputs.resize(static_cast<size_t>(n * layer.out));
    for (int64_t r = 0; r < n; ++r) {
      std::copy_n(dense + layer.bias, layer.out, layer.outputs.data() + r * layer.out);
    }
    MultiplyAdd(n, layer.out, layer.in, {in, layer.in, 1}, transposed_.data(),
                layer.outputs.data());
    if (layer.relu) {
      for (float& value : layer.outputs) value = value < 0 ? 0 : value;  // NaN stays.
    }
    in = layer.outputs.data();
  }
  return in;
}

void Mlp::Backward(int64_t n, const float* in, const float* dense, const float* out_gradient,
                   float* in_gradient, float* dense_gradients) {
  for (size_t at = layers_.size(); at-- > 0;) {
    Layer& layer = layers_[at];
    const auto size = static_cast<size_t>(n * layer.out);
    if (at + 1 == layers_.size()) {
      layer.gradients.assign(out_gradient, out_gradient + size);
    }
    float* gradients = layer.gradients.data();
    if (layer.relu) {
      for (size_t i = 0; i < size; ++i) {
        gradients[i] = layer.outputs[i] == 0 ? 0 : gradients[i];
      }
    }
    const float* inputs = at == 0 ? in : layers_[at - 1].outputs.data();
    MultiplyAdd(layer.out, layer.in, n, {gradients, 1, layer.out}, inputs,
                dense_gradients + layer.weight);
    float* bias = dense_gradients + layer.bias;
    for (int64_t r = 0; r < n; ++r) {
      for (int64_t o = 0; o < layer.out; ++o) bias[o] += gradients[r * layer.out + o];
    }
    float* below = in_gradient;
    if (at > 0) {
      layers_[at - 1].gradients.resize(static_cast<size_t>(n * layer.in));
      below = layers_[at - 1].gradients.data();
    }
    if (below == nullptr) continue;
    std::fill_n(below, n * layer.in, 0.0f);
    MultiplyAdd(n, layer.in, layer.out, {gradients, layer.out, 1}, dense + layer.weight, below);
  }
}

}  // namespace capstan
