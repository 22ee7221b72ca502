#include "common/sparse_models/field_pool.h"

#include <algorithm>
#include <cstddef>

namespace capstan {

void FieldPool::FindScales(absl::Span<const int32_t> fields) {
  scales_.resize(static_cast<size_t>(options_.fields));
  if (options_.pooling == Pooling::kSum) {
    std::fill(scales_.begin(), scales_.end(), 1.0f);
    return;
  }
  std::fill(scales_.begin(), scales_.end(), 0.0f);
  for (const int32_t field : fields) ++scales_[static_cast<size_t>(field)];
  for (float& scale : scales_) scale = scale == 0 ? 0 : 1 / scale;
}

void FieldPool::Forward(const SparseInput& input, int64_t stride, float* out) {
  const int64_t dim = options_.dim;
  size_t key = 0;
  for (int64_t i = 0; i < input.examples.count(); ++i) {
    const ExampleView example = input.examples.example(i);
    FindScales(example.fields);
    std::fill_n(out + i * stride, options_.fields * dim, 0.0f);
    for (size_t j = 0; j < example.keys.size(); ++j, ++key) {
      const float scale = example.values[j] * scales_[static_cast<size_t>(example.fields[j])];
      const float* v =
          input.rows.data() + input.places[key] * options_.row_dim + options_.first_column;
      float* __restrict sums = out + i * stride + example.fields[j] * dim;
      for (int64_t c = 0; c < dim; ++c) sums[c] += scale * v[c];
    }
  }
}

void FieldPool::Backward(const SparseInput& input, int64_t stride, const float* out_gradient,
                         float* row_gradients) {
  const int64_t dim = options_.dim;
  size_t key = 0;
  for (int64_t i = 0; i < input.examples.count(); ++i) {
    const ExampleView example = input.examples.example(i);
    FindScales(example.fields);
    for (size_t j = 0; j < example.keys.size(); ++j, ++key) {
      const float scale = example.values[j] * scales_[static_cast<size_t>(example.fields[j])];
      const float* g = out_gradient + i * stride + example.fields[j] * dim;
      float* __restrict sums =
          row_gradients + input.places[key] * options_.row_dim + options_.first_column;
      for (int64_t c = 0; c < dim; ++c) sums[c] += scale * g[c];
    }
  }
}

}  // namespace capstan
