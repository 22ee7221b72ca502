// FactorModel: a model whose output is a sum of terms. Logistic regression, factorisation machines,
// matrix factorisation, wide & deep and DeepFM each have some of the terms. With features x_i of
// keys i whose rows are [w_i, v_i], and dense columns d_j:
//
//   z = b + sum_j u_j d_j + sum_i w_i x_i           always
//     + sum_{i<j} <v_i, v_j> x_i x_j                `pairs`: one pass over the keys, as
//                                                   (|sum_i x_i v_i|^2 - sum_i |x_i v_i|^2) / 2
//     + MLP([field vectors, d])                     `hidden` not empty: the fields' pooled v, one
//                                                   behind the other, then ReLU layers, then one
//                                                   unit
//
// A key that an example names twice counts as two features. Presets below give each model's
// options; README.md has their sources.
// Thread safety: used by one thread at a time.
#ifndef CAPSTAN_COMMON_SPARSE_MODELS_FACTOR_MODEL_H_
#define CAPSTAN_COMMON_SPARSE_MODELS_FACTOR_MODEL_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/examples/example_batch.h"
#include "common/sparse_models/example_check.h"
#include "common/sparse_models/field_pool.h"
#include "common/sparse_models/mlp.h"
#include "common/sparse_models/sparse_model.h"

namespace capstan {

class FactorModel final : public SparseModel {
 public:
  struct Options {
    std::string name = "factor model";       // Used in messages.
    SparseLoss loss = SparseLoss::kLogLoss;  // kLogLoss or kSquared.
    int64_t dense_columns = 0;               // 0 to 65,535.
    int64_t rank = 0;                        // Length of v, 0 to 4,095.
    bool pairs = false;                      // REQUIRES: rank >= 1.
    std::vector<int64_t> hidden;             // Widths; with rank >= 1 or dense columns.
    int32_t fields = kFieldsMax;             // 1 to 65,535. Keys of others are an error.
    bool one_key_a_field = false;            // More are an error.
    Pooling pooling = Pooling::kSum;         // Combines a field's keys for the MLP.
    float factor_std = 0.01f;                // >= 0, finite. Initial deviation of v; w starts at 0.
    float bias = 0;                          // Finite. The initial b.
  };

  // Presets; the other options may be set afterwards.
  static Options LogisticRegression(int64_t dense_columns);
  static Options FactorizationMachine(int64_t dense_columns, int64_t rank);
  // Field 0 is the user, 1 the item; labels are ratings, and `mean` is their mean or a guess at it.
  // An unknown user or item counts with the other's bias alone.
  static Options MatrixFactorization(int64_t rank, float mean);
  static Options WideAndDeep(int64_t dense_columns, int32_t fields, int64_t rank,
                             std::vector<int64_t> hidden);
  static Options DeepFm(int64_t dense_columns, int32_t fields, int64_t rank,
                        std::vector<int64_t> hidden);

  // Errors: kInvalidArgument  an option out of its range; names it.
  static absl::StatusOr<std::unique_ptr<FactorModel>> Create(const Options& options);

  const SparseShape& shape() const override { return shape_; }

  // Errors: kInvalidArgument  dense columns or fields that are not the options'; two keys of a
  //                           field where one is allowed.
  absl::Status AppendKeys(const ExampleBatch& examples, const SampleDraws& draws,
                          std::vector<uint64_t>* keys) const override;

  SparseResult Train(const SparseInput& input, int64_t gradient_samples,
                     absl::Span<float> row_gradients, absl::Span<float> dense_gradients) override;
  SparseResult Predict(const SparseInput& input, absl::Span<float> outputs) override;

 private:
  explicit FactorModel(const Options& options);

  // Fills outputs_, sums_ and what the MLP keeps.
  void Forward(const SparseInput& input);
  // b + linear terms + pairs of example i, whose first key is number `first_key` of the batch.
  double Terms(const SparseInput& input, int64_t i, size_t first_key);
  // Adds the gradient of these terms.
  void TermsBackward(const SparseInput& input, int64_t i, size_t first_key, float* row_gradients,
                     float* dense_gradients) const;

  const Options options_;
  SparseShape shape_;
  Mlp mlp_;
  FieldPool pool_;
  int64_t mlp_inputs_ = 0;

  std::vector<double> outputs_;         // [n].
  std::vector<float> slopes_;           // [n].
  std::vector<float> sums_;             // [n, rank]: sum of x_i v_i.
  std::vector<float> squares_;          // [rank], of one example: sum of (x_i v_i)^2.
  std::vector<float> inputs_;           // [n, mlp_inputs_].
  std::vector<float> input_gradients_;  // [n, mlp_inputs_].
};

}  // namespace capstan

#endif  // CAPSTAN_COMMON_SPARSE_MODELS_FACTOR_MODEL_H_
