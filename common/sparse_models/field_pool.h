// FieldPool: computes one vector for each field of an example from the rows of the field's keys.
//
//   sum   sum over the field's keys of value * v
//   mean  the same, divided by the number of the field's keys
//
// A field without keys has zeros. v is the `dim` columns of a row from `first_column` on.
// Thread safety: thread-compatible.
#ifndef CAPSTAN_COMMON_SPARSE_MODELS_FIELD_POOL_H_
#define CAPSTAN_COMMON_SPARSE_MODELS_FIELD_POOL_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "common/sparse_models/sparse_model.h"

namespace capstan {

enum class Pooling { kSum, kMean };

class FieldPool {
 public:
  struct Options {
    int32_t fields = 1;
    int64_t dim = 1;
    int64_t row_dim = 1;
    int64_t first_column = 0;  // first_column + dim <= row_dim.
    Pooling pooling = Pooling::kSum;
  };

  FieldPool() = default;
  explicit FieldPool(const Options& options) : options_(options) {}

  // Writes field f of example i to out[i * stride + f * dim], of `dim`.
  // REQUIRES: all fields of the examples are in [0, fields); stride >= fields * dim.
  void Forward(const SparseInput& input, int64_t stride, float* out);

  // Adds the gradients of the rows to row_gradients; out_gradient is laid out as Forward's out.
  void Backward(const SparseInput& input, int64_t stride, const float* out_gradient,
                float* row_gradients);

 private:
  // Factors of the values of one example: 1, or 1 / (keys of the field); by field.
  void FindScales(absl::Span<const int32_t> fields);

  Options options_;
  std::vector<float> scales_;
};

}  // namespace capstan

#endif  // CAPSTAN_COMMON_SPARSE_MODELS_FIELD_POOL_H_
