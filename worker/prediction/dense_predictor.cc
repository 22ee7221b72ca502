#include <utility>

#include "common/data/dataset.h"
#include "common/model/model_plan.h"
#include "common/model/plan_model.h"
#include "common/model/tables.h"
#include "common/status/status_macros.h"
#include "kernels/cpu/cpu_backend.h"
#include "worker/data/batch_loader.h"
#include "worker/prediction/predictor.h"
#include "worker/training/network.h"
#include "worker/training/trainer/dataset_split.h"

namespace capstan::worker {
namespace {

class DensePredictor final : public Predictor {
 public:
  DensePredictor(ModelPlan plan, std::unique_ptr<kernels::Backend> backend,
                 std::vector<std::vector<float>> tables, std::unique_ptr<DatasetSplit> split)
      : plan_(std::move(plan)),
        backend_(std::move(backend)),
        tables_(std::move(tables)),
        split_(std::move(split)) {}

  absl::Status Prepare() {
    CAPSTAN_ASSIGN_OR_RETURN(network_, Network::Create(plan_, *backend_, kEvaluationBatchSize));
    return absl::OkStatus();
  }

  OutputKind kind() const override {
    if (plan_.loss.of_classes()) return OutputKind::kLogits;
    return plan_.loss.kind == PlannedLoss::Kind::kSigmoid ? OutputKind::kFlags
                                                          : OutputKind::kValues;
  }
  int64_t width() const override { return plan_.classes; }
  int64_t count() const override { return split_->dataset.count; }

  absl::Status Predict(Range numbers, Predictions* predictions, EvaluationSum* sum,
                       ScoreCounts* scores) override {
    *predictions = {.first = numbers.begin};
    const auto take = [&](const DecodedBatch& batch) {
      std::vector<float>& labels = predictions->labels;
      if (plan_.loss.of_classes()) {
        labels.insert(labels.end(), batch.labels.begin(), batch.labels.end());
      } else {
        labels.insert(labels.end(), batch.targets.begin(), batch.targets.end());
      }
      network_->AppendLogits(&predictions->outputs);
    };
    const absl::Span<const float> statistics =
        tables_.size() > 1 ? absl::MakeConstSpan(tables_[1]) : absl::Span<const float>();
    CAPSTAN_ASSIGN_OR_RETURN(
        const BatchResult result,
        EvaluateSplit(*split_, numbers, *network_, tables_[0], statistics, &which_, take));
    sum->samples += numbers.size();
    sum->loss += result.loss_sum;
    sum->correct += result.correct;
    sum->outputs += result.outputs;
    scores->Merge(result.scores);
    return absl::OkStatus();
  }

 private:
  const ModelPlan plan_;
  const std::unique_ptr<kernels::Backend> backend_;
  const std::vector<std::vector<float>> tables_;
  const std::unique_ptr<DatasetSplit> split_;
  std::unique_ptr<Network> network_;  // It uses plan_ and backend_.
  Parameters which_ = Parameters::kNew;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Predictor>> MakeDensePredictor(const v1::JobSpec& job,
                                                              const ModelReader& model) {
  const v1::Data& data = job.data();
  CAPSTAN_ASSIGN_OR_RETURN(Dataset dataset, LoadDataset(data, data.test(), LabelsOf(job.model())));
  const int64_t classes = job.model().has_classes() ? job.model().classes() : dataset.classes;
  CAPSTAN_ASSIGN_OR_RETURN(ModelPlan plan, PlanModel(job.model(), dataset.shape, classes));
  CAPSTAN_ASSIGN_OR_RETURN(const Augmentation augmentation,
                           MakeAugmentation(data.augmentation(), dataset.shape.c));
  std::vector<std::vector<float>> tables;
  for (const v1::TableSpec& table : MakeTables(plan)) {
    CAPSTAN_ASSIGN_OR_RETURN(tables.emplace_back(), model.ReadTable(table));
  }
  const int threads = job.resources().has_threads() ? job.resources().threads() : 1;
  // Samples come in file order and are not augmented, so that the seed does not matter.
  auto split = std::make_unique<DatasetSplit>(std::move(dataset), /*seed=*/1, augmentation,
                                              DatasetDecoder::Mode::kEvaluation);
  auto predictor = std::make_unique<DensePredictor>(std::move(plan),
                                                    kernels::MakeCpuBackend({.threads = threads}),
                                                    std::move(tables), std::move(split));
  CAPSTAN_RETURN_IF_ERROR(predictor->Prepare());
  return predictor;
}

}  // namespace capstan::worker
