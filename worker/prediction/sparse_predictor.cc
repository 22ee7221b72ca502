#include <algorithm>
#include <optional>
#include <utility>

#include "common/model/initial_rows.h"
#include "common/model/tables.h"
#include "common/sparse_models/model_of_job.h"
#include "common/status/status_macros.h"
#include "worker/prediction/predictor.h"
#include "worker/training/trainer/sparse_trainer.h"

namespace capstan::worker {
namespace {

OutputKind KindOf(SparseLoss loss) {
  switch (loss) {
    case SparseLoss::kLogLoss:
      return OutputKind::kLogit;
    case SparseLoss::kSquared:
      return OutputKind::kValue;
    case SparseLoss::kNegativeSampling:
      break;
  }
  return OutputKind::kLoss;
}

class SparsePredictor final : public Predictor {
 public:
  SparsePredictor(std::unique_ptr<SparseTrainer> trainer, MappedRows rows, std::vector<float> dense,
                  const RowInitializer& initial_rows)
      : trainer_(std::move(trainer)),
        rows_(std::move(rows)),
        dense_(std::move(dense)),
        initial_rows_(initial_rows) {}

  OutputKind kind() const override { return KindOf(trainer_->shape().loss); }
  int64_t width() const override { return 1; }
  int64_t count() const override { return trainer_->test_samples(); }

  absl::Status Predict(Range numbers, Predictions* predictions, EvaluationSum* sum,
                       ScoreCounts* scores) override {
    *predictions = {.first = numbers.begin};
    CAPSTAN_ASSIGN_OR_RETURN(const SparseBatch batch, trainer_->LoadTest(numbers));
    GatherRows(*batch.keys);
    const BatchResult result = trainer_->Evaluate(batch, gathered_, dense_, &predictions->outputs);
    const absl::Span<const float> labels = batch.examples.labels();
    predictions->labels.assign(labels.begin(), labels.end());
    sum->samples += numbers.size();
    sum->loss += result.loss_sum;
    sum->correct += result.correct;
    if (kind() != OutputKind::kLogit) return absl::OkStatus();
    for (size_t i = 0; i < labels.size(); ++i) {
      scores->Add(predictions->outputs[i], labels[i] > 0);
    }
    return absl::OkStatus();
  }

 private:
  // A key without a row has its initial row, as on servers.
  void GatherRows(const KeyBatch& batch) {
    const auto dim = static_cast<size_t>(rows_.dim());
    gathered_.resize(batch.keys.size() * dim);
    std::vector<uint64_t> without;
    std::vector<float*> places;
    for (size_t i = 0; i < batch.keys.size(); ++i) {
      float* const place = gathered_.data() + i * dim;
      const absl::Span<const float> row = rows_.Find(batch.keys[i]);
      if (row.empty()) {
        without.push_back(batch.keys[i]);
        places.push_back(place);
      } else {
        std::copy(row.begin(), row.end(), place);
      }
    }
    initial_rows_.Fill(without, places);
  }

  const std::unique_ptr<SparseTrainer> trainer_;
  const MappedRows rows_;
  const std::vector<float> dense_;
  const RowInitializer initial_rows_;
  std::vector<float> gathered_;  // The rows of the current batch.
};

}  // namespace

absl::StatusOr<std::unique_ptr<Predictor>> MakeSparsePredictor(const v1::JobSpec& job,
                                                               const ModelReader& model) {
  CAPSTAN_ASSIGN_OR_RETURN(auto trainer, SparseTrainer::CreateForTest(job));
  const std::vector<v1::TableSpec> tables =
      MakeSparseTables(job.model().sparse(), trainer->shape());
  const v1::SparseSpec& sparse = tables[kRowsTable].sparse();
  CAPSTAN_ASSIGN_OR_RETURN(MappedRows rows, model.OpenRows(tables[kRowsTable]));
  std::vector<float> dense;
  if (tables.size() > kDenseTable) {
    CAPSTAN_ASSIGN_OR_RETURN(dense, model.ReadTable(tables[kDenseTable]));
  }
  const uint64_t seed = SeedOf(job.training());
  const RowInitializer initial_rows(sparse.initializer(), seed, TableId(kRowsTable), sparse.dim(),
                                    sparse.zero_columns());
  return std::make_unique<SparsePredictor>(std::move(trainer), std::move(rows), std::move(dense),
                                           initial_rows);
}

absl::StatusOr<std::unique_ptr<Predictor>> Predictor::Create(const v1::JobSpec& job,
                                                             const ModelReader& model) {
  return job.model().has_sparse() ? MakeSparsePredictor(job, model)
                                  : MakeDensePredictor(job, model);
}

}  // namespace capstan::worker
