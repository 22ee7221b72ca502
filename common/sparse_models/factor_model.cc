#include "common/sparse_models/factor_model.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstddef>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/sparse_models/losses.h"
#include "common/status/status_macros.h"

namespace capstan {
namespace {

constexpr float kFloatMax = std::numeric_limits<float>::max();

absl::Status CheckOptions(const FactorModel::Options& options) {
  const std::string& name = options.name;
  CAPSTAN_RETURN_IF_ERROR(CheckOption(name, "dense_columns",
                                      static_cast<double>(options.dense_columns), 0,
                                      static_cast<double>(kDenseColumnsMax)));
  CAPSTAN_RETURN_IF_ERROR(CheckOption(name, "rank", static_cast<double>(options.rank),
                                      options.pairs ? 1 : 0, static_cast<double>(kRankMax)));
  CAPSTAN_RETURN_IF_ERROR(CheckOption(name, "fields", options.fields, 1, kFieldsMax));
  CAPSTAN_RETURN_IF_ERROR(CheckOption(name, "factor_std", options.factor_std, 0, kFloatMax));
  CAPSTAN_RETURN_IF_ERROR(CheckOption(name, "bias", options.bias, -kFloatMax, kFloatMax));
  CAPSTAN_RETURN_IF_ERROR(CheckWidths(name, "hidden", options.hidden));
  if (options.loss == SparseLoss::kNegativeSampling) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": its loss is negative sampling, expected log loss or squared"));
  }
  if (!options.hidden.empty() && options.rank == 0 && options.dense_columns == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": hidden layers with rank 0 and no dense columns, expected inputs"));
  }
  return absl::OkStatus();
}

void AppendLinear(std::string name, int64_t count, float start, SparseShape* shape) {
  shape->dense.push_back({.name = std::move(name),
                          .shape = {count},
                          .offset = shape->dense_count,
                          .count = count,
                          .initial = {Initial::Kind::kConstant, start}});
  shape->dense_count += count;
}

}  // namespace

FactorModel::Options FactorModel::LogisticRegression(int64_t dense_columns) {
  return {.name = "logistic regression", .dense_columns = dense_columns};
}

FactorModel::Options FactorModel::FactorizationMachine(int64_t dense_columns, int64_t rank) {
  return {
      .name = "factorisation machine", .dense_columns = dense_columns, .rank = rank, .pairs = true};
}

FactorModel::Options FactorModel::MatrixFactorization(int64_t rank, float mean) {
  return {.name = "matrix factorisation",
          .loss = SparseLoss::kSquared,
          .rank = rank,
          .pairs = true,
          .fields = 2,
          .one_key_a_field = true,
          .factor_std = 0.1f,
          .bias = mean};
}

FactorModel::Options FactorModel::WideAndDeep(int64_t dense_columns, int32_t fields, int64_t rank,
                                              std::vector<int64_t> hidden) {
  return {.name = "wide & deep",
          .dense_columns = dense_columns,
          .rank = rank,
          .hidden = std::move(hidden),
          .fields = fields};
}

FactorModel::Options FactorModel::DeepFm(int64_t dense_columns, int32_t fields, int64_t rank,
                                         std::vector<int64_t> hidden) {
  return {.name = "DeepFM",
          .dense_columns = dense_columns,
          .rank = rank,
          .pairs = true,
          .hidden = std::move(hidden),
          .fields = fields};
}

absl::StatusOr<std::unique_ptr<FactorModel>> FactorModel::Create(const Options& options) {
  CAPSTAN_RETURN_IF_ERROR(CheckOptions(options));
  return std::unique_ptr<FactorModel>(new FactorModel(options));
}

FactorModel::FactorModel(const Options& options)
    : options_(options), squares_(static_cast<size_t>(options.rank)) {
  shape_.row_dim = 1 + options.rank;
  shape_.zero_columns = 1;
  shape_.row_initial = {Initial::Kind::kNormal, options.factor_std};
  shape_.loss = options.loss;
  AppendLinear("linear.bias", 1, options.bias, &shape_);
  if (options.dense_columns > 0) {
    AppendLinear("linear.weight", options.dense_columns, 0, &shape_);
  }
  if (options.hidden.empty()) return;
  const int64_t field_inputs = options.rank == 0 ? 0 : options.fields * options.rank;
  mlp_inputs_ = field_inputs + options.dense_columns;
  std::vector<int64_t> widths = {mlp_inputs_};
  widths.insert(widths.end(), options.hidden.begin(), options.hidden.end());
  widths.push_back(1);
  mlp_ = Mlp("deep", widths, Mlp::Output::kLinear, &shape_);
  pool_ = FieldPool({.fields = options.fields,
                     .dim = options.rank,
                     .row_dim = shape_.row_dim,
                     .first_column = 1,
                     .pooling = options.pooling});
}

absl::Status FactorModel::AppendKeys(const ExampleBatch& examples, const SampleDraws& draws,
                                     std::vector<uint64_t>* keys) const {
  static_cast<void>(draws);  // Nothing is drawn.
  CAPSTAN_RETURN_IF_ERROR(CheckDenseColumns(options_.name, examples, options_.dense_columns));
  CAPSTAN_RETURN_IF_ERROR(CheckFields(options_.name, examples, options_.fields));
  if (options_.one_key_a_field) {
    CAPSTAN_RETURN_IF_ERROR(CheckOneKeyAField(options_.name, examples, options_.fields));
  }
  keys->insert(keys->end(), examples.keys().begin(), examples.keys().end());
  return absl::OkStatus();
}

double FactorModel::Terms(const SparseInput& input, int64_t i, size_t first_key) {
  const ExampleView example = input.examples.example(i);
  const int64_t rank = options_.rank;
  const float* dense = input.dense.data();
  double z = dense[0];
  for (size_t j = 0; j < example.dense.size(); ++j) {
    z += static_cast<double>(dense[1 + j]) * static_cast<double>(example.dense[j]);
  }
  float* __restrict sums = sums_.data() + i * rank;
  float* __restrict squares = squares_.data();
  if (options_.pairs) {
    std::fill_n(sums, rank, 0.0f);
    std::fill_n(squares, rank, 0.0f);
  }
  for (size_t j = 0; j < example.keys.size(); ++j) {
    const float* row = input.rows.data() + input.places[first_key + j] * shape_.row_dim;
    const float x = example.values[j];
    z += static_cast<double>(row[0]) * static_cast<double>(x);
    if (!options_.pairs) continue;
    for (int64_t c = 0; c < rank; ++c) {
      const float term = x * row[1 + c];
      sums[c] += term;
      squares[c] += term * term;
    }
  }
  if (!options_.pairs) return z;
  double pairs = 0;
  for (int64_t c = 0; c < rank; ++c) {
    pairs += static_cast<double>(sums[c]) * static_cast<double>(sums[c]) -
             static_cast<double>(squares[c]);
  }
  return z + pairs / 2;
}

void FactorModel::Forward(const SparseInput& input) {
  const int64_t n = input.examples.count();
  assert(input.places.size() == input.examples.keys().size());
  assert(static_cast<int64_t>(input.dense.size()) == shape_.dense_count);
  outputs_.resize(static_cast<size_t>(n));
  sums_.resize(static_cast<size_t>(n * options_.rank));
  for (int64_t i = 0; i < n; ++i) {
    const auto at = static_cast<size_t>(i);
    outputs_[at] = Terms(input, i, static_cast<size_t>(input.examples.row_begin()[at]));
  }
  if (mlp_.empty()) return;
  inputs_.resize(static_cast<size_t>(n * mlp_inputs_));
  if (options_.rank > 0) pool_.Forward(input, mlp_inputs_, inputs_.data());
  for (int64_t i = 0; i < n; ++i) {
    const ExampleView example = input.examples.example(i);
    std::copy(example.dense.begin(), example.dense.end(),
              inputs_.data() + (i + 1) * mlp_inputs_ - options_.dense_columns);
  }
  const float* deep = mlp_.Forward(n, inputs_.data(), input.dense.data());
  for (int64_t i = 0; i < n; ++i) outputs_[static_cast<size_t>(i)] += static_cast<double>(deep[i]);
}

void FactorModel::TermsBackward(const SparseInput& input, int64_t i, size_t first_key,
                                float* row_gradients, float* dense_gradients) const {
  const ExampleView example = input.examples.example(i);
  const float slope = slopes_[static_cast<size_t>(i)];
  dense_gradients[0] += slope;
  for (size_t j = 0; j < example.dense.size(); ++j) {
    dense_gradients[1 + j] += slope * example.dense[j];
  }
  const float* sums = sums_.data() + i * options_.rank;
  for (size_t j = 0; j < example.keys.size(); ++j) {
    const int64_t begin = input.places[first_key + j] * shape_.row_dim;
    const float* v = input.rows.data() + begin + 1;
    float* __restrict gradient = row_gradients + begin;
    const float x = example.values[j];
    const float scale = slope * x;
    gradient[0] += scale;
    if (!options_.pairs) continue;
    // d(pairs)/d(v_j) = x_j (sum_i x_i v_i - x_j v_j).
    for (int64_t c = 0; c < options_.rank; ++c) gradient[1 + c] += scale * (sums[c] - x * v[c]);
  }
}

SparseResult FactorModel::Train(const SparseInput& input, int64_t gradient_samples,
                                absl::Span<float> row_gradients,
                                absl::Span<float> dense_gradients) {
  assert(gradient_samples >= 1 && row_gradients.size() == input.rows.size());
  assert(static_cast<int64_t>(dense_gradients.size()) == shape_.dense_count);
  Forward(input);
  const SparseResult result = FindLosses(options_.loss, outputs_.data(), input.examples.labels(),
                                         gradient_samples, &slopes_);
  std::fill(row_gradients.begin(), row_gradients.end(), 0.0f);
  std::fill(dense_gradients.begin(), dense_gradients.end(), 0.0f);
  const int64_t n = input.examples.count();
  for (int64_t i = 0; i < n; ++i) {
    const auto first_key = static_cast<size_t>(input.examples.row_begin()[static_cast<size_t>(i)]);
    TermsBackward(input, i, first_key, row_gradients.data(), dense_gradients.data());
  }
  if (mlp_.empty()) return result;
  input_gradients_.resize(inputs_.size());
  mlp_.Backward(n, inputs_.data(), input.dense.data(), slopes_.data(), input_gradients_.data(),
                dense_gradients.data());
  if (options_.rank > 0) {
    pool_.Backward(input, mlp_inputs_, input_gradients_.data(), row_gradients.data());
  }
  return result;
}

SparseResult FactorModel::Predict(const SparseInput& input, absl::Span<float> outputs) {
  assert(static_cast<int64_t>(outputs.size()) == input.examples.count());
  Forward(input);
  for (size_t i = 0; i < outputs.size(); ++i) outputs[i] = static_cast<float>(outputs_[i]);
  return FindLosses(options_.loss, outputs_.data(), input.examples.labels(),
                    /*gradient_samples=*/1, &slopes_);
}

}  // namespace capstan
