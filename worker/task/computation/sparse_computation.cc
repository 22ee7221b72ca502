#include "worker/task/computation/sparse_computation.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/sparse_models/model_of_job.h"
#include "common/sparse_models/sparse_model.h"
#include "common/status/status_macros.h"
#include "worker/task/computation/task_options.h"

namespace capstan::worker {
namespace {

// Two batches are made beside the one that is computed and the one that is pulled: reading is about
// as fast as computing, and a block of a file is read at once. One thread, because examples are
// read in order.
constexpr PrefetchOptions kPrefetch = {.threads = 1, .batches_ahead_max = 2};

ExamplePart PartOf(const Work& work) {
  switch (work.kind) {
    case Work::Kind::kTrain:
      return {.epoch = work.epoch, .positions = work.positions};
    case Work::Kind::kEvaluate:
      return {.test = true, .epoch = {}, .positions = work.positions};
    default:
      return {.epoch = work.epoch, .positions = {}};  // An export's rows are not pulled.
  }
}

std::optional<RowCache> MakeRowCache(const v1::JobSpec& job, int64_t dim) {
  const std::optional<RowCache::Options> options = RowCacheOptions(job, dim);
  return options.has_value() ? std::optional<RowCache>(*options) : std::nullopt;
}

absl::Span<const float> DenseOf(const TableArrays& arrays) {
  return arrays.size() > kDenseTable ? arrays[kDenseTable] : absl::Span<const float>();
}

WorkResult ResultOf(const SparseBatch& batch, const BatchResult& result) {
  return {
      .samples = batch.examples.count(), .loss_sum = result.loss_sum, .correct = result.correct};
}

}  // namespace

std::string NameOf(const ExamplePart& part) {
  return absl::StrCat("the batch of ", part.test ? "test examples [" : "positions [",
                      part.positions.begin, ", ", part.positions.end, ") of epoch ",
                      part.epoch.value());
}

absl::StatusOr<std::unique_ptr<Computation>> SparseComputation::Create(const v1::JobSpec& job,
                                                                       const Progress& progress) {
  CAPSTAN_ASSIGN_OR_RETURN(std::unique_ptr<SparseTrainer> trainer,
                           SparseTrainer::Create(job, progress));
  return std::unique_ptr<Computation>(new SparseComputation(job, std::move(trainer)));
}

SparseComputation::SparseComputation(const v1::JobSpec& job, std::unique_ptr<SparseTrainer> trainer)
    : trainer_(std::move(trainer)),
      tables_(MakeSparseTables(job.model().sparse(), trainer_->shape())),
      cache_(MakeRowCache(job, trainer_->shape().row_dim)),
      batches_(
          [this](const ExamplePart& part, SparseBatch& batch) {
            auto loaded = part.test ? trainer_->LoadTest(part.positions)
                                    : trainer_->LoadTraining(part.epoch, part.positions);
            if (loaded.ok()) batch = *std::move(loaded);
            return loaded.status();
          },
          kPrefetch) {}

AllTableKeys SparseComputation::KeysOf(const SparseBatch& batch) const {
  return {{.batch = batch.keys, .dim = trainer_->shape().row_dim}};
}

size_t SparseComputation::RowElements(const SparseBatch& batch) const {
  return static_cast<size_t>(batch.keys->size() * trainer_->shape().row_dim);
}

void SparseComputation::MakeRoom(const SparseBatch& batch, TableArrays* arrays) const {
  arrays->resize(tables_.size());
  (*arrays)[kRowsTable].resize(RowElements(batch));
  if (arrays->size() > kDenseTable) {
    (*arrays)[kDenseTable].resize(static_cast<size_t>(trainer_->shape().dense_count));
  }
}

absl::StatusOr<AllTableKeys> SparseComputation::BeginPull(const Work& work,
                                                          const std::vector<Work>& upcoming,
                                                          TableArrays* parameters) {
  std::vector<ExamplePart> parts = {PartOf(work)};
  if (!upcoming.empty() && upcoming.front() == work) {
    for (size_t i = 1; i < upcoming.size(); ++i) parts.push_back(PartOf(upcoming[i]));
  }
  CAPSTAN_ASSIGN_OR_RETURN(SparseBatch * batch, batches_.Get(parts));
  std::swap(pulled_, *batch);
  pulled_is_taken_ = false;
  MakeRoom(pulled_, parameters);
  AllTableKeys keys = KeysOf(pulled_);
  if (cache_.has_value() && work.kind == Work::Kind::kTrain) {
    keys[kRowsTable].wanted = std::make_shared<const WantedKeys>(
        cache_->Begin(pulled_.keys, work.iteration, absl::MakeSpan((*parameters)[kRowsTable])));
  }
  return keys;
}

RowsRead SparseComputation::Pulled(const OpDone& done, const TableArrays& parameters) {
  if (!cache_.has_value()) return {.staleness = done.staleness};
  return cache_->End({.staleness = done.staleness, .membership = done.membership},
                     parameters[kRowsTable]);
}

std::string SparseComputation::Kept() const {
  if (!cache_.has_value()) return "";
  return absl::StrCat(cache_->rows(), " rows in ", cache_->bytes() >> 20, " MiB");
}

AllTableKeys SparseComputation::BeginTraining(const Work&, TableArrays* parameters,
                                              GradientArrays* gradient) {
  // If they are taken already, this is the same work again.
  if (!std::exchange(pulled_is_taken_, true)) {
    std::swap(training_, pulled_);
    rows_.swap((*parameters)[kRowsTable]);
    // It is copied, because servers send it again only if it has changed.
    if (parameters->size() > kDenseTable) dense_ = (*parameters)[kDenseTable];
  }
  MakeRoom(training_, &gradient->floats);
  return KeysOf(training_);
}

absl::StatusOr<WorkResult> SparseComputation::Train(const Work& work, GradientArrays* gradient,
                                                    const GradientPartReady&) {
  TableArrays& tables = gradient->floats;
  const absl::Span<float> dense_gradients =
      tables.size() > kDenseTable ? absl::MakeSpan(tables[kDenseTable]) : absl::Span<float>();
  CAPSTAN_ASSIGN_OR_RETURN(const BatchResult result,
                           trainer_->Train(training_, work.gradient_samples, rows_, dense_,
                                           absl::MakeSpan(tables[kRowsTable]), dense_gradients));
  return ResultOf(training_, result);
}

absl::StatusOr<WorkResult> SparseComputation::Evaluate(const Work&, const TableArrays& parameters) {
  std::vector<float> outputs;
  const BatchResult result =
      trainer_->Evaluate(pulled_, parameters[kRowsTable], DenseOf(parameters), &outputs);
  WorkResult evaluated = ResultOf(pulled_, result);
  if (trainer_->shape().loss != SparseLoss::kLogLoss) return evaluated;
  const absl::Span<const float> labels = pulled_.examples.labels();
  for (size_t i = 0; i < outputs.size(); ++i) evaluated.scores.Add(outputs[i], labels[i] > 0);
  return evaluated;
}

}  // namespace capstan::worker
