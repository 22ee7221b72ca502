#include "common/sparse_models/dlrm.h"

#include <catch2/catch.hpp>
#include <cstddef>
#include <limits>
#include <memory>
#include <vector>

#include "common/sparse_models/testing/model_checks.h"
#include "common/testing/status_matchers.h"

namespace capstan::dlrm_test {
namespace {

using ::capstan::testing::AddExample;
using ::capstan::testing::CheckGradients;
using ::capstan::testing::CheckInvariants;
using ::capstan::testing::Feature;
using ::capstan::testing::LossOfOutputs;
using ::capstan::testing::ModelCase;
using ::capstan::testing::PredictOn;
using ::capstan::testing::ReferenceMlp;
using ::capstan::testing::ReferenceOutput;

using Options = Dlrm::Options;
using Doubles = std::vector<double>;

std::unique_ptr<Dlrm> Make(const Options& options) {
  REQUIRE_OK_AND_ASSIGN(std::unique_ptr<Dlrm> model, Dlrm::Create(options));
  return model;
}

// The examples have no keys, a key twice, several keys of a field, and fields without keys.
ExampleBatch Examples(int64_t dense_columns) {
  ExampleBatch batch(dense_columns);
  const auto add = [&](float label, const std::vector<Feature>& features) {
    std::vector<float> dense;
    for (int64_t j = 0; j < dense_columns; ++j) {
      dense.push_back(0.8f - 0.4f * static_cast<float>(j) +
                      0.1f * static_cast<float>(batch.count()));
    }
    AddExample(label, dense, features, &batch);
  };
  add(1, {{10, 1, 0}, {20, 1, 1}, {30, 1, 2}});
  add(0, {{10, 1, 0}, {10, 1, 0}, {30, 2, 2}});
  add(0, {});
  add(1, {{11, -0.5f, 0}, {12, 3, 0}, {13, 1, 0}, {20, 0.25f, 1}});
  add(1, {{31, 1, 2}});
  return batch;
}

// The formula of dlrm.h.
ReferenceOutput Naive(const Options& options) {
  return [options](const ExampleView& example, const std::vector<const double*>& rows,
                   const double* dense) {
    const auto dim = static_cast<size_t>(options.dim);
    int64_t offset = 0;
    std::vector<Doubles> t;
    Doubles x;
    if (options.dense_columns > 0) {
      std::vector<int64_t> widths = {options.dense_columns};
      widths.insert(widths.end(), options.bottom.begin(), options.bottom.end());
      widths.push_back(options.dim);
      x = ReferenceMlp(Doubles(example.dense.begin(), example.dense.end()), widths,
                       /*relu_last=*/true, dense, &offset);
      t.push_back(x);
    }
    for (int32_t field = 0; field < options.fields; ++field) {
      Doubles sum(dim);
      double keys = 0;
      for (size_t j = 0; j < rows.size(); ++j) {
        if (example.fields[j] != field) continue;
        ++keys;
        for (size_t c = 0; c < dim; ++c)
          sum[c] += static_cast<double>(example.values[j]) * rows[j][c];
      }
      if (options.pooling == Pooling::kMean && keys > 0) {
        for (double& value : sum) value /= keys;
      }
      t.push_back(sum);
    }
    for (size_t i = 0; i < t.size(); ++i) {
      for (size_t j = 0; j < i; ++j) {
        x.push_back(0);
        for (size_t c = 0; c < dim; ++c) x.back() += t[i][c] * t[j][c];
      }
    }
    std::vector<int64_t> widths = {static_cast<int64_t>(x.size())};
    widths.insert(widths.end(), options.top.begin(), options.top.end());
    widths.push_back(1);
    return ReferenceMlp(x, widths, /*relu_last=*/false, dense, &offset)[0];
  };
}

void CheckModel(const Options& options) {
  const std::unique_ptr<Dlrm> model = Make(options);
  const ExampleBatch examples = Examples(options.dense_columns);
  for (const uint64_t seed : {1, 2}) {
    CheckGradients(*model, ModelCase(*model, examples, seed, /*row_scale=*/1),
                   LossOfOutputs(SparseLoss::kLogLoss, Naive(options)));
  }
  CheckInvariants(*model, examples);
}

TEST_CASE("DLRM: loss and gradients are those of its formula", "[sparse_models]") {
  for (const Pooling pooling : {Pooling::kSum, Pooling::kMean}) {
    CheckModel({.dense_columns = 4,
                .fields = 3,
                .dim = 5,
                .bottom = {6},
                .top = {9, 4},
                .pooling = pooling});
  }
}

TEST_CASE("DLRM: small shapes", "[sparse_models]") {
  SECTION("no dense columns") { CheckModel({.fields = 3, .dim = 9, .top = {5}}); }
  SECTION("no hidden layers") { CheckModel({.dense_columns = 2, .fields = 3, .dim = 1}); }
}

TEST_CASE("DLRM: dots stand row by row behind the bottom's output", "[sparse_models]") {
  const std::unique_ptr<Dlrm> model = Make({.fields = 3, .dim = 1});
  CHECK(model->shape().row_dim == 1);
  CHECK(model->shape().zero_columns == 0);
  ExampleBatch batch;
  AddExample(1, {}, {{1, 2, 0}, {1, 3, 1}, {1, 5, 2}}, &batch);
  ModelCase on(*model, batch);
  on.rows = {1};
  on.dense = {100, 10, 1, 0.5f};  // The weights of (1, 0), (2, 0), (2, 1), and the bias.
  CHECK(PredictOn(*model, on) == std::vector<float>{600 + 100 + 15 + 0.5f});
}

TEST_CASE("DLRM: examples that do not fit are refused", "[sparse_models]") {
  const std::unique_ptr<Dlrm> model = Make({.dense_columns = 2, .fields = 2});
  std::vector<uint64_t> keys;
  CHECK_STATUS(model->AppendKeys(Examples(1), {}, &keys), absl::StatusCode::kInvalidArgument,
               "DLRM: examples have 1 dense columns, expected the model's 2");
  CHECK_STATUS(model->AppendKeys(Examples(2), {}, &keys), absl::StatusCode::kInvalidArgument,
               "DLRM: example 0 has a key of field 2, expected one of [0, 2)");
  CHECK(keys.empty());
}

TEST_CASE("DLRM: options out of range are refused", "[sparse_models]") {
  const auto refused = [](const Options& options, const char* message) {
    CHECK_STATUS(Dlrm::Create(options), absl::StatusCode::kInvalidArgument, message);
  };
  refused({.dense_columns = -1}, "dense_columns is -1");
  refused({.fields = 0}, "fields is 0");
  refused({.fields = 4097}, "fields is 4097");
  refused({.fields = 1}, "fields without dense columns is 1, expected 2");
  refused({.dim = 0}, "dim is 0");
  refused({.dense_columns = 1, .bottom = {0}}, "bottom is 0");
  refused({.bottom = {4}}, "a bottom MLP without dense columns");
  refused({.top = {-4}}, "top is -4");
  refused({.embedding_std = std::numeric_limits<float>::quiet_NaN()}, "embedding_std is nan");
}

}  // namespace
}  // namespace capstan::dlrm_test
