// Dlrm: the deep learning recommendation model. Dense columns go through a bottom MLP, keys through
// embeddings; the top MLP reads the dot products of all pairs of these vectors.
//
//   t_0       = bottom MLP(dense columns), ReLU after every layer   (none without dense columns)
//   t_f       = pooled rows of field f                              [dim] each
//   logit     = top MLP([t_0, <t_i, t_j> for i > j, row by row]), linear at the end
//
// Thread safety: used by one thread at a time.
#ifndef CAPSTAN_COMMON_SPARSE_MODELS_DLRM_H_
#define CAPSTAN_COMMON_SPARSE_MODELS_DLRM_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/examples/example_batch.h"
#include "common/sparse_models/field_pool.h"
#include "common/sparse_models/mlp.h"
#include "common/sparse_models/sparse_model.h"

namespace capstan {

class Dlrm final : public SparseModel {
 public:
  struct Options {
    int64_t dense_columns = 0;        // 0 to 65,535.
    int32_t fields = 2;               // 1 to 4,096; at least two vectors with t_0.
    int64_t dim = 16;                 // Length of a row, 1 to 4,096.
    std::vector<int64_t> bottom;      // Widths of its hidden layers; `dim` follows.
    std::vector<int64_t> top;         // Widths of its hidden layers; 1 follows.
    Pooling pooling = Pooling::kSum;  // Combines a field's keys.
    float embedding_std = 0.1f;       // >= 0, finite. Standard deviation of new rows.
  };

  // Errors: kInvalidArgument  an option out of its range; names it.
  static absl::StatusOr<std::unique_ptr<Dlrm>> Create(const Options& options);

  const SparseShape& shape() const override { return shape_; }

  // Errors: kInvalidArgument  dense columns or fields that are not the options'.
  absl::Status AppendKeys(const ExampleBatch& examples, const SampleDraws& draws,
                          std::vector<uint64_t>* keys) const override;

  SparseResult Train(const SparseInput& input, int64_t gradient_samples,
                     absl::Span<float> row_gradients, absl::Span<float> dense_gradients) override;
  SparseResult Predict(const SparseInput& input, absl::Span<float> outputs) override;

 private:
  explicit Dlrm(const Options& options);

  int64_t dots() const { return vectors_ * (vectors_ - 1) / 2; }
  int64_t passed() const { return bottom_.empty() ? 0 : options_.dim; }  // t_0, in the top's input.

  // Returns the logits.
  const float* Forward(const SparseInput& input);
  // One example: t [vectors, dim] -> its dots, and back: adds to t_gradient.
  void Interact(const float* t, float* products);
  void InteractBackward(const float* t, const float* product_gradients, float* t_gradient) const;

  const Options options_;
  SparseShape shape_;
  int64_t vectors_ = 0;  // Fields, and t_0 if there is one.
  Mlp bottom_, top_;
  FieldPool pool_;

  std::vector<float> transposed_;        // [dim, vectors], of one example.
  std::vector<float> t_, t_gradients_;   // [n, vectors, dim].
  std::vector<float> x_, x_gradients_;   // [n, passed() + dots()].
  std::vector<float> bottom_gradients_;  // [n, dim].
  std::vector<float> slopes_;            // [n].
};

}  // namespace capstan

#endif  // CAPSTAN_COMMON_SPARSE_MODELS_DLRM_H_
