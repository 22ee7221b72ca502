#include "worker/training/trainer/sparse_trainer.h"

#include <cmath>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/model/tables.h"
#include "common/random/permutation.h"
#include "common/random/philox.h"
#include "common/sparse_models/model_of_job.h"
#include "common/status/status_macros.h"
#include "worker/training/step/gradient_norm.h"

namespace capstan::worker {
namespace {

// The random streams of the job's seed (README.md).
constexpr uint64_t kTrainingDraws = 4;
constexpr uint64_t kTestDraws = 5;
constexpr uint64_t kValidationDraws = 6;

absl::Status CheckPositions(const char* what, Range positions, int64_t count) {
  if (positions.begin >= 0 && positions.end <= count) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(what, " examples [", positions.begin, ", ",
                                                 positions.end, "), expected a part of [0, ", count,
                                                 ")"));
}

absl::Status Diverged(const SparseBatch& batch, const char* what, double value) {
  return absl::OutOfRangeError(absl::StrCat("diverged: the ", what, " of a batch of ",
                                            batch.examples.count(), " examples is ", value,
                                            ", expected a finite value"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<SparseTrainer>> SparseTrainer::Create(const v1::JobSpec& job,
                                                                     const Progress& progress) {
  CAPSTAN_ASSIGN_OR_RETURN(auto train, ExampleSet::Open(job.data(), job.data().train(), progress));
  std::unique_ptr<ExampleSet> validation, test;
  if (job.data().has_validation()) {
    CAPSTAN_ASSIGN_OR_RETURN(validation,
                             ExampleSet::Open(job.data(), job.data().validation(), progress));
  }
  if (job.data().has_test()) {
    CAPSTAN_ASSIGN_OR_RETURN(test, ExampleSet::Open(job.data(), job.data().test(), progress));
  }
  CAPSTAN_ASSIGN_OR_RETURN(auto model, MakeSparseModel(job.model().sparse(), *train, progress));
  return std::unique_ptr<SparseTrainer>(new SparseTrainer(
      job, std::move(train), std::move(validation), std::move(test), std::move(model)));
}

absl::StatusOr<std::unique_ptr<SparseTrainer>> SparseTrainer::CreateForTest(
    const v1::JobSpec& job, const Progress& progress) {
  if (job.model().sparse().has_skip_gram()) return Create(job, progress);
  CAPSTAN_ASSIGN_OR_RETURN(auto test, ExampleSet::Open(job.data(), job.data().test(), progress));
  CAPSTAN_ASSIGN_OR_RETURN(auto model, MakeSparseModel(job.model().sparse(), *test, progress));
  return std::unique_ptr<SparseTrainer>(new SparseTrainer(
      job, /*train=*/nullptr, /*validation=*/nullptr, std::move(test), std::move(model)));
}

SparseTrainer::SparseTrainer(const v1::JobSpec& job, std::unique_ptr<ExampleSet> train,
                             std::unique_ptr<ExampleSet> validation,
                             std::unique_ptr<ExampleSet> test, std::unique_ptr<SparseModel> model)
    : seed_(SeedOf(job.training())),
      clip_norm_(job.optimizer().clip_norm()),
      buckets_(BucketsOf(job.model().sparse())),
      train_(std::move(train)),
      validation_(std::move(validation)),
      test_(std::move(test)),
      model_(std::move(model)) {}

absl::StatusOr<SparseBatch> SparseTrainer::LoadTraining(Epoch epoch, Range positions) {
  if (positions.empty()) positions = {0, 0};
  CAPSTAN_RETURN_IF_ERROR(CheckPositions("training", positions, train_samples()));
  SparseBatch batch{.examples = ExampleBatch(train_->dense_columns())};
  batch.draws = {.key = MixKey(MixKey(seed_, kTrainingDraws), static_cast<uint64_t>(epoch.value())),
                 .first = static_cast<uint64_t>(positions.begin)};
  CAPSTAN_RETURN_IF_ERROR(
      train_->AppendShuffled(EpochOrderKey(seed_, epoch.value()), positions, &batch.examples));
  CAPSTAN_RETURN_IF_ERROR(FindKeys(&batch));
  return batch;
}

absl::StatusOr<SparseBatch> SparseTrainer::LoadTest(Range positions) {
  const bool validates = positions.begin < validation_samples();
  ExampleSet* const set = validates ? validation_.get() : test_.get();
  const int64_t first = validates ? 0 : validation_samples();
  positions = {positions.begin - first, positions.end - first};
  CAPSTAN_RETURN_IF_ERROR(CheckPositions(validates ? "validation" : "test", positions,
                                         validates ? validation_samples() : test_samples()));
  SparseBatch batch{.examples = ExampleBatch(set == nullptr ? 0 : set->dense_columns())};
  batch.draws = {.key = MixKey(seed_, validates ? kValidationDraws : kTestDraws),
                 .first = static_cast<uint64_t>(positions.begin)};
  if (set != nullptr) CAPSTAN_RETURN_IF_ERROR(set->Append(positions, &batch.examples));
  CAPSTAN_RETURN_IF_ERROR(FindKeys(&batch));
  return batch;
}

absl::Status SparseTrainer::FindKeys(SparseBatch* batch) const {
  std::vector<uint64_t> keys;
  CAPSTAN_RETURN_IF_ERROR(model_->AppendKeys(batch->examples, batch->draws, &keys));
  KeyBatch merged = MakeKeyBatch(keys, buckets_, &batch->places);
  NameLists(&merged);
  batch->keys = std::make_shared<const KeyBatch>(std::move(merged));
  return absl::OkStatus();
}

absl::StatusOr<BatchResult> SparseTrainer::Train(const SparseBatch& batch, int64_t gradient_samples,
                                                 absl::Span<const float> rows,
                                                 absl::Span<const float> dense,
                                                 absl::Span<float> row_gradients,
                                                 absl::Span<float> dense_gradients) {
  const SparseResult result =
      model_->Train({batch.examples, batch.draws, batch.places, rows, dense}, gradient_samples,
                    row_gradients, dense_gradients);
  if (!std::isfinite(result.loss_sum)) return Diverged(batch, "loss", result.loss_sum);
  const double squares = SumOfSquares(row_gradients) + SumOfSquares(dense_gradients);
  if (!std::isfinite(squares)) return Diverged(batch, "gradient's sum of squares", squares);
  const double share =
      static_cast<double>(batch.examples.count()) / static_cast<double>(gradient_samples);
  const float factor = ClipFactor(squares, clip_norm_ * share);
  Scale(factor, row_gradients);
  Scale(factor, dense_gradients);
  return ResultOf(batch, result);
}

BatchResult SparseTrainer::Evaluate(const SparseBatch& batch, absl::Span<const float> rows,
                                    absl::Span<const float> dense, std::vector<float>* outputs) {
  outputs->resize(static_cast<size_t>(batch.examples.count()));
  const SparseResult result = model_->Predict(
      {batch.examples, batch.draws, batch.places, rows, dense}, absl::MakeSpan(*outputs));
  return ResultOf(batch, result);
}

BatchResult SparseTrainer::ResultOf(const SparseBatch& batch, const SparseResult& result) const {
  BatchResult out{.loss_sum = result.loss_sum, .correct = result.correct};
  if (shape().loss == SparseLoss::kNegativeSampling && result.losses > 0) {
    out.loss_sum *=
        static_cast<double>(batch.examples.count()) / static_cast<double>(result.losses);
  }
  return out;
}

}  // namespace capstan::worker
