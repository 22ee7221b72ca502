#include "common/sparse_models/model_of_job.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/model/tables.h"
#include "common/sparse_models/dlrm.h"
#include "common/sparse_models/factor_model.h"
#include "common/sparse_models/noise_words.h"
#include "common/sparse_models/skip_gram.h"
#include "common/status/status_macros.h"

namespace capstan {
namespace {

constexpr int64_t kExamplesAtOnce = 4096;
constexpr int64_t kLabelsForMean = 1'000'000;
constexpr double kDefaultNoisePower = 0.75;  // word2vec uses it.

using Model = absl::StatusOr<std::unique_ptr<SparseModel>>;

SparseLoss LossOfSpec(v1::SparseModel::Loss loss) {
  return loss == v1::SparseModel::SQUARED ? SparseLoss::kSquared : SparseLoss::kLogLoss;
}

Pooling PoolingOf(v1::SparseModel::Pooling pooling) {
  return pooling == v1::SparseModel::MEAN ? Pooling::kMean : Pooling::kSum;
}

std::vector<int64_t> Widths(const google::protobuf::RepeatedField<int32_t>& units) {
  return {units.begin(), units.end()};
}

// Calls use(batch) for the examples [0, count), some at a time.
template <typename Use>
absl::Status ForEachBatch(ExampleSet& set, int64_t count, const Progress& progress, Use use) {
  ExampleBatch batch(set.dense_columns());
  for (int64_t begin = 0; begin < count; begin += kExamplesAtOnce) {
    batch.Clear();
    CAPSTAN_RETURN_IF_ERROR(set.Append({begin, std::min(begin + kExamplesAtOnce, count)}, &batch));
    use(batch);
    if (progress) progress("examples gone through", batch.count());
  }
  return absl::OkStatus();
}

absl::StatusOr<float> MeanLabel(ExampleSet& set, const Progress& progress) {
  const int64_t count = std::min(set.count(), kLabelsForMean);
  double sum = 0;
  CAPSTAN_RETURN_IF_ERROR(ForEachBatch(set, count, progress, [&sum](const ExampleBatch& batch) {
    for (const float label : batch.labels()) sum += label;
  }));
  return static_cast<float>(sum / static_cast<double>(count));
}

// Counts the occurrences of each key; returns them in ascending order of the keys.
absl::StatusOr<std::vector<NoiseWords::Word>> CountWords(ExampleSet& set,
                                                         const Progress& progress) {
  absl::flat_hash_map<uint64_t, int64_t> counts;
  const auto count_keys = [&counts](const ExampleBatch& batch) {
    for (const uint64_t key : batch.keys()) ++counts[key];
  };
  CAPSTAN_RETURN_IF_ERROR(ForEachBatch(set, set.count(), progress, count_keys));
  std::vector<NoiseWords::Word> words;
  for (const auto& [key, count] : counts) words.push_back({.key = key, .count = count});
  std::sort(words.begin(), words.end(), [](const auto& a, const auto& b) { return a.key < b.key; });
  return words;
}

Model MakeFactorModel(const FactorModel::Options& options) {
  CAPSTAN_ASSIGN_OR_RETURN(std::unique_ptr<FactorModel> model, FactorModel::Create(options));
  return model;
}

Model Make(const v1::SparseModel::LogisticRegression& spec, ExampleSet& train) {
  FactorModel::Options options = FactorModel::LogisticRegression(train.dense_columns());
  options.loss = LossOfSpec(spec.loss());
  options.bias = spec.bias();
  return MakeFactorModel(options);
}

Model Make(const v1::SparseModel::FactorizationMachine& spec, ExampleSet& train) {
  FactorModel::Options options =
      FactorModel::FactorizationMachine(train.dense_columns(), spec.rank());
  options.loss = LossOfSpec(spec.loss());
  options.bias = spec.bias();
  if (spec.has_factor_std()) options.factor_std = spec.factor_std();
  return MakeFactorModel(options);
}

Model Make(const v1::SparseModel::MatrixFactorization& spec, ExampleSet& train,
           const Progress& progress) {
  if (train.field_count() != 2 || train.dense_columns() != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "matrix factorisation: the examples have ", train.field_count(), " fields and ",
        train.dense_columns(), " dense columns, expected 2 fields (user, item) and none"));
  }
  FactorModel::Options options = FactorModel::MatrixFactorization(spec.rank(), spec.mean());
  if (!spec.has_mean()) {
    CAPSTAN_ASSIGN_OR_RETURN(options.bias, MeanLabel(train, progress));
  }
  if (spec.has_factor_std()) options.factor_std = spec.factor_std();
  return MakeFactorModel(options);
}

Model MakeDeep(FactorModel::Options options, const v1::SparseModel::DeepFactors& spec) {
  options.pooling = PoolingOf(spec.pooling());
  options.loss = LossOfSpec(spec.loss());
  if (spec.has_factor_std()) options.factor_std = spec.factor_std();
  return MakeFactorModel(options);
}

Model Make(const v1::SparseModel::Dlrm& spec, ExampleSet& train) {
  Dlrm::Options options{.dense_columns = train.dense_columns(),
                        .fields = train.field_count(),
                        .dim = spec.dim(),
                        .bottom = Widths(spec.bottom()),
                        .top = Widths(spec.top()),
                        .pooling = PoolingOf(spec.pooling())};
  if (spec.has_embedding_std()) options.embedding_std = spec.embedding_std();
  CAPSTAN_ASSIGN_OR_RETURN(std::unique_ptr<Dlrm> model, Dlrm::Create(options));
  return model;
}

Model Make(const v1::SparseModel::SkipGram& spec, ExampleSet& train, const Progress& progress) {
  const double power = spec.has_noise_power() ? spec.noise_power() : kDefaultNoisePower;
  CAPSTAN_ASSIGN_OR_RETURN(const std::vector<NoiseWords::Word> words, CountWords(train, progress));
  CAPSTAN_ASSIGN_OR_RETURN(NoiseWords noise, NoiseWords::Create(words, power));
  SkipGram::Options options;
  if (spec.has_dim()) options.dim = spec.dim();
  if (spec.has_window()) options.window = spec.window();
  if (spec.has_negatives()) options.negatives = spec.negatives();
  CAPSTAN_ASSIGN_OR_RETURN(std::unique_ptr<SkipGram> model,
                           SkipGram::Create(options, std::move(noise)));
  return model;
}

}  // namespace

int32_t BucketsOf(const v1::SparseModel& spec) {
  return spec.has_buckets() ? spec.buckets() : kRowBucketsDefault;
}

absl::StatusOr<std::unique_ptr<SparseModel>> MakeSparseModel(const v1::SparseModel& spec,
                                                             ExampleSet& train,
                                                             const Progress& progress) {
  const auto deep = [&train](const v1::SparseModel::DeepFactors& factors, auto make_options) {
    return MakeDeep(make_options(train.dense_columns(), train.field_count(), factors.rank(),
                                 Widths(factors.hidden())),
                    factors);
  };
  switch (spec.kind_case()) {
    case v1::SparseModel::kLogisticRegression:
      return Make(spec.logistic_regression(), train);
    case v1::SparseModel::kFactorizationMachine:
      return Make(spec.factorization_machine(), train);
    case v1::SparseModel::kMatrixFactorization:
      return Make(spec.matrix_factorization(), train, progress);
    case v1::SparseModel::kWideAndDeep:
      return deep(spec.wide_and_deep(), FactorModel::WideAndDeep);
    case v1::SparseModel::kDeepFm:
      return deep(spec.deep_fm(), FactorModel::DeepFm);
    case v1::SparseModel::kDlrm:
      return Make(spec.dlrm(), train);
    case v1::SparseModel::kSkipGram:
      return Make(spec.skip_gram(), train, progress);
    case v1::SparseModel::KIND_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError("model.sparse: no kind of model");
}

std::vector<v1::TableSpec> MakeSparseTables(const v1::SparseModel& spec, const SparseShape& shape) {
  std::vector<v1::TableSpec> tables = {
      MakeRowsTable(kRowsTable, "rows", shape.row_dim, BucketsOf(spec), spec.rows())};
  v1::SparseSpec& rows = *tables.front().mutable_sparse();
  rows.set_zero_columns(static_cast<int32_t>(shape.zero_columns));
  *rows.mutable_initializer() = MakeInitializer(shape.row_initial);
  if (shape.dense_count > 0) {
    tables.push_back(
        MakeTable(kDenseTable, "parameters", v1::OPTIMIZER, shape.dense, shape.dense_count));
  }
  return tables;
}

}  // namespace capstan
