#include "common/sparse_models/factor_model.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstddef>
#include <limits>
#include <memory>
#include <vector>

#include "common/sparse_models/testing/model_checks.h"
#include "common/testing/status_matchers.h"

namespace capstan::factor_model_test {
namespace {

using Options = FactorModel::Options;
using ::capstan::testing::AddExample;
using ::capstan::testing::CheckGradients;
using ::capstan::testing::CheckInvariants;
using ::capstan::testing::LossOfOutputs;
using ::capstan::testing::ModelCase;
using ::capstan::testing::PredictOn;
using ::capstan::testing::ReferenceMlp;
using ::capstan::testing::ReferenceOutput;
using ::capstan::testing::TrainOn;

std::unique_ptr<FactorModel> Make(const Options& options) {
  REQUIRE_OK_AND_ASSIGN(std::unique_ptr<FactorModel> model, FactorModel::Create(options));
  return model;
}

// Every case that examples may have: no keys, a key twice, several keys of a field, a field
// without keys, values other than 1.
ExampleBatch OddExamples(int64_t dense_columns) {
  ExampleBatch batch(dense_columns);
  const auto add = [&](float label, const std::vector<testing::Feature>& features) {
    std::vector<float> dense;
    for (int64_t j = 0; j < dense_columns; ++j) {
      dense.push_back(0.5f - 0.3f * static_cast<float>(j + batch.count()));
    }
    AddExample(label, dense, features, &batch);
  };
  add(1, {{10, 1, 0}, {20, 1, 1}, {30, 1, 2}});
  add(0, {});
  add(1, {{10, 1, 0}, {10, 1, 0}, {30, 2, 2}});
  add(0, {{11, -0.5f, 0}, {12, 3, 0}, {13, 1, 0}, {20, 0.25f, 1}});
  add(-1, {{31, 1, 2}});
  return batch;
}

// One user and one item each, with gaps.
ExampleBatch Ratings() {
  ExampleBatch batch;
  AddExample(4, {}, {{1, 1, 0}, {100, 1, 1}}, &batch);
  AddExample(2, {}, {{1, 1, 0}, {101, 1, 1}}, &batch);
  AddExample(5, {}, {{101, 1, 1}, {2, 1, 0}}, &batch);
  AddExample(1, {}, {{2, 1, 0}}, &batch);
  AddExample(3, {}, {}, &batch);
  return batch;
}

// The terms of factor_model.h as they stand there.
ReferenceOutput Naive(const Options& options) {
  return [options](const ExampleView& example, const std::vector<const double*>& rows,
                   const double* dense) {
    double z = dense[0];
    for (size_t j = 0; j < example.dense.size(); ++j) {
      z += dense[1 + j] * static_cast<double>(example.dense[j]);
    }
    const auto rank = static_cast<size_t>(options.rank);
    const auto fields = options.hidden.empty() ? 0 : static_cast<size_t>(options.fields);
    std::vector<double> pooled(fields * rank);
    for (size_t i = 0; i < rows.size(); ++i) {
      const auto x = static_cast<double>(example.values[i]);
      z += rows[i][0] * x;
      for (size_t j = 0; options.pairs && j < i; ++j) {
        for (size_t c = 1; c <= rank; ++c) {
          z += rows[i][c] * rows[j][c] * x * static_cast<double>(example.values[j]);
        }
      }
      if (options.hidden.empty()) continue;
      double of_field = 0;
      for (const int32_t field : example.fields) of_field += field == example.fields[i] ? 1 : 0;
      const double share = options.pooling == Pooling::kMean ? 1 / of_field : 1;
      for (size_t c = 0; c < rank; ++c) {
        pooled[static_cast<size_t>(example.fields[i]) * rank + c] += share * x * rows[i][c + 1];
      }
    }
    if (options.hidden.empty()) return z;
    pooled.insert(pooled.end(), example.dense.begin(), example.dense.end());
    std::vector<int64_t> widths = {static_cast<int64_t>(pooled.size())};
    widths.insert(widths.end(), options.hidden.begin(), options.hidden.end());
    widths.push_back(1);
    int64_t offset = 1 + options.dense_columns;
    return z + ReferenceMlp(pooled, widths, /*relu_last=*/false, dense, &offset)[0];
  };
}

void CheckModel(const Options& options, const ExampleBatch& examples) {
  INFO(options.name);
  const std::unique_ptr<FactorModel> model = Make(options);
  for (const uint64_t seed : {1, 2}) {
    CheckGradients(*model, ModelCase(*model, examples, seed),
                   LossOfOutputs(options.loss, Naive(options)));
  }
  CheckInvariants(*model, examples);
}

TEST_CASE("Logistic regression: loss and gradients are those of its formula", "[sparse_models]") {
  CheckModel(FactorModel::LogisticRegression(0), OddExamples(0));
  CheckModel(FactorModel::LogisticRegression(3), OddExamples(3));
  const std::unique_ptr<FactorModel> model = Make(FactorModel::LogisticRegression(3));
  CHECK(model->shape().row_dim == 1);
  CHECK(model->shape().dense_count == 4);
}

TEST_CASE("Factorisation machine: the sum over pairs and its gradients are those of all pairs",
          "[sparse_models]") {
  for (const int64_t rank : {1, 2, 5, 17}) {
    CheckModel(FactorModel::FactorizationMachine(0, rank), OddExamples(0));
  }
  CheckModel(FactorModel::FactorizationMachine(2, 4), OddExamples(2));
  Options regression = FactorModel::FactorizationMachine(2, 4);
  regression.loss = SparseLoss::kSquared;
  CheckModel(regression, OddExamples(2));
}

TEST_CASE("Factorisation machine: one key alone has no pairs, to the bit", "[sparse_models]") {
  ExampleBatch batch;
  AddExample(1, {}, {{7, 0.3f, 0}}, &batch);
  const std::unique_ptr<FactorModel> model = Make(FactorModel::FactorizationMachine(0, 8));
  ModelCase on(*model, batch);
  on.rows[0] = 0;
  on.dense[0] = 0.75f;
  CHECK(PredictOn(*model, on) == std::vector<float>{0.75f});
  const auto gradients = TrainOn(*model, on);
  for (size_t c = 1; c < gradients.rows.size(); ++c) CHECK(gradients.rows[c] == 0);
}

TEST_CASE("Factorisation machine: new rows have weight 0 and factors that differ",
          "[sparse_models]") {
  const std::unique_ptr<FactorModel> model = Make(FactorModel::FactorizationMachine(0, 8));
  const SparseShape& shape = model->shape();
  CHECK(shape.row_dim == 9);
  CHECK(shape.zero_columns == 1);
  CHECK(shape.row_initial.kind == Initial::Kind::kNormal);
  CHECK(shape.row_initial.value == 0.01f);
}

TEST_CASE("Matrix factorisation: mean, two biases and a dot product, with squared loss",
          "[sparse_models]") {
  CheckModel(FactorModel::MatrixFactorization(3, 2.5f), Ratings());
  const std::unique_ptr<FactorModel> model = Make(FactorModel::MatrixFactorization(2, 2.5f));
  CHECK(model->shape().dense[0].initial.value == 2.5f);
  ExampleBatch batch;
  AddExample(0, {}, {{1, 1, 0}, {2, 1, 1}}, &batch);
  ModelCase on(*model, batch);
  on.rows = {1, 2, 3, 10, 5, 7};
  on.dense = {100};
  CHECK(PredictOn(*model, on) == std::vector<float>{100 + 1 + 10 + 2 * 5 + 3 * 7});
}

TEST_CASE("Matrix factorisation: two users of one rating are refused", "[sparse_models]") {
  const std::unique_ptr<FactorModel> model = Make(FactorModel::MatrixFactorization(3, 0));
  ExampleBatch batch = Ratings();
  AddExample(3, {}, {{1, 1, 0}, {2, 1, 0}}, &batch);
  std::vector<uint64_t> keys = {5};
  CHECK_STATUS(model->AppendKeys(batch, {}, &keys), absl::StatusCode::kInvalidArgument,
               "matrix factorisation: example 5 has two keys of field 0");
  CHECK(keys == std::vector<uint64_t>{5});
}

TEST_CASE("Wide & deep: loss and gradients are those of its formula", "[sparse_models]") {
  for (const Pooling pooling : {Pooling::kSum, Pooling::kMean}) {
    Options options = FactorModel::WideAndDeep(2, 3, 2, {5, 4});
    options.pooling = pooling;
    CheckModel(options, OddExamples(2));
    options = FactorModel::WideAndDeep(0, 3, 1, {1});
    options.pooling = pooling;
    CheckModel(options, OddExamples(0));
  }
  CheckModel(FactorModel::WideAndDeep(3, 3, 0, {6}), OddExamples(3));  // Dense columns alone.
}

TEST_CASE("DeepFM: loss and gradients are those of its formula", "[sparse_models]") {
  for (const Pooling pooling : {Pooling::kSum, Pooling::kMean}) {
    Options options = FactorModel::DeepFm(2, 3, 3, {7, 4, 3});
    options.pooling = pooling;
    CheckModel(options, OddExamples(2));
  }
}

TEST_CASE("Factor model: examples that do not fit are refused", "[sparse_models]") {
  const std::unique_ptr<FactorModel> model = Make(FactorModel::DeepFm(2, 2, 3, {4}));
  std::vector<uint64_t> keys;
  CHECK_STATUS(model->AppendKeys(OddExamples(1), {}, &keys), absl::StatusCode::kInvalidArgument,
               "DeepFM: examples have 1 dense columns, expected the model's 2");
  CHECK_STATUS(model->AppendKeys(OddExamples(2), {}, &keys), absl::StatusCode::kInvalidArgument,
               "DeepFM: example 0 has a key of field 2, expected one of [0, 2)");
  ExampleBatch negative(2);
  AddExample(0, {1, 2}, {}, &negative);
  AddExample(0, {1, 2}, {{1, 1, -1}}, &negative);
  CHECK_STATUS(model->AppendKeys(negative, {}, &keys), absl::StatusCode::kInvalidArgument,
               "example 1 has a key of field -1");
  CHECK(keys.empty());
}

TEST_CASE("Factor model: options out of range are refused", "[sparse_models]") {
  const auto refused = [](const Options& options, const char* message) {
    CHECK_STATUS(FactorModel::Create(options), absl::StatusCode::kInvalidArgument, message);
  };
  refused(FactorModel::LogisticRegression(-1), "logistic regression: dense_columns is -1");
  refused(FactorModel::FactorizationMachine(0, 0), "rank is 0, expected 1 to 4095");
  refused(FactorModel::FactorizationMachine(0, 4096), "rank is 4096");
  refused(FactorModel::DeepFm(0, 0, 4, {4}), "fields is 0");
  refused(FactorModel::DeepFm(0, 2, 4, {4, 0}), "hidden is 0");
  refused(FactorModel::DeepFm(0, 2, 4, std::vector<int64_t>(17, 1)), "number of hidden is 17");
  refused(FactorModel::WideAndDeep(0, 2, 0, {4}), "expected inputs");
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  refused(FactorModel::MatrixFactorization(2, kNan), "bias is nan");
  refused({.factor_std = -1}, "factor_std is -1");
  refused({.loss = SparseLoss::kNegativeSampling}, "negative sampling");
}

TEST_CASE("Factor model: a NaN among dense columns, values or labels reaches the loss",
          "[sparse_models]") {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const std::unique_ptr<FactorModel> model = Make(FactorModel::DeepFm(1, 1, 2, {3}));
  for (int wrong = 0; wrong < 3; ++wrong) {
    ExampleBatch batch(1);
    AddExample(wrong == 0 ? kNan : 1, {wrong == 1 ? kNan : 1}, {{1, wrong == 2 ? kNan : 1, 0}},
               &batch);
    CHECK(std::isnan(TrainOn(*model, ModelCase(*model, batch)).result.loss_sum));
  }
}

}  // namespace
}  // namespace capstan::factor_model_test
