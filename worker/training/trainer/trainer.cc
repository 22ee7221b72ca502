#include "worker/training/trainer/trainer.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/data/dataset.h"
#include "common/job/spec/consistency_of.h"
#include "common/model/plan_model.h"
#include "common/model/tables.h"
#include "common/status/status_macros.h"
#include "common/wire/number_format.h"
#include "kernels/cpu/cpu_backend.h"
#include "worker/data/batch_loader.h"
#include "worker/data/batch_source.h"
#include "worker/data/dataset_decoder.h"
#include "worker/training/step/host_copies.h"
#include "worker/training/trainer/dataset_split.h"
#include "worker/training/trainer/loss_scale.h"

namespace capstan::worker {
namespace {

absl::Span<const float> StatisticsOf(const Trainer::Tables& tables) {
  return tables.size() > 1 ? absl::MakeConstSpan(tables[1]) : absl::Span<const float>();
}

absl::Span<float> StatisticsOf(Trainer::Tables& tables) {
  return tables.size() > 1 ? absl::MakeSpan(tables[1]) : absl::Span<float>();
}

absl::Status CheckTables(const ModelPlan& plan, const Trainer::Tables& tables) {
  const size_t expected = plan.statistics.empty() ? 1 : 2;
  if (tables.size() == expected) return absl::OkStatus();  // The network checks their sizes.
  return absl::InvalidArgumentError(absl::StrCat(tables.size(), " tables, expected ", expected));
}

std::optional<LossScale::Options> LossScaleOf(const v1::JobSpec& job,
                                              const kernels::Backend& backend) {
  if (backend.TensorType() != kernels::DataType::kFloat16) return std::nullopt;
  const bool bsp = ConsistencyOf(job).synchronous();
  using Start = LossScale::Options::Start;
  return LossScale::Options{.start = bsp ? Start::kInitial : Start::kLast};
}

class TrainerImpl final : public Trainer {
 public:
  TrainerImpl(kernels::BackendGroup group, ModelPlan plan, std::unique_ptr<DatasetSplit> train,
              std::unique_ptr<DatasetSplit> validation, std::unique_ptr<DatasetSplit> test)
      : plan_(std::move(plan)),
        train_(std::move(train)),
        validation_(std::move(validation)),
        test_(std::move(test)),
        group_(std::move(group)) {}

  absl::Status Prepare(const v1::JobSpec& job, StepObserver* observer, ExchangeFormats formats) {
    const GradientStep::Options options = {.seed = SeedOf(job.training()),
                                           .clip_norm = job.optimizer().clip_norm(),
                                           .loss_scale = LossScaleOf(job, group_[0])};
    // A gradient that the host multiplies must be rounded after that.
    if (!GradientStep::LeavesAsComputed(options)) formats.gradients = NumberFormat::kFp32;
    CAPSTAN_ASSIGN_OR_RETURN(
        network_,
        Network::Create(plan_, group_,
                        std::max<int64_t>(job.training().batch_size(), kEvaluationBatchSize),
                        observer, formats));
    step_ = std::make_unique<GradientStep>(plan_, *network_, options);
    return absl::OkStatus();
  }

  const ModelPlan& plan() const override { return plan_; }
  int64_t train_samples() const override { return train_->dataset.count; }
  int64_t validation_samples() const override { return SamplesOf(validation_.get()); }
  int64_t test_samples() const override { return SamplesOf(test_.get()); }

  ExchangeFormats exchanges() const override { return network_->exchanges(); }

  absl::Status Forward(const MicroBatch& micro_batch, ParameterView parameters,
                       absl::Span<const MicroBatch> ahead,
                       const ParametersNeeded& needed) override {
    BatchView batch;
    if (!micro_batch.positions.empty()) {
      std::vector<BatchRange> ranges = {RangeOf(micro_batch)};
      for (const MicroBatch& next : ahead) {
        if (!next.positions.empty()) ranges.push_back(RangeOf(next));
      }
      CAPSTAN_ASSIGN_OR_RETURN(const DecodedBatch* decoded, train_->source.Get(ranges));
      batch = train_->ViewOf(*decoded);
      if (staged_name_ != 0 && staged_ == ranges[0]) batch.name = staged_name_;
    }
    staged_name_ = 0;
    return step_->Forward(micro_batch, batch, parameters, needed);
  }

  absl::StatusOr<BatchResult> Backward(GradientView gradient, absl::Span<float> statistics,
                                       const GradientReady& ready) override {
    return step_->Backward(gradient, statistics, ready, [this] { StageNext(); });
  }

  absl::StatusOr<BatchResult> Evaluate(Range positions, const Tables& tables,
                                       Parameters which) override {
    CAPSTAN_RETURN_IF_ERROR(CheckTables(plan_, tables));
    const bool validates = positions.begin < validation_samples();
    DatasetSplit* const split = validates ? validation_.get() : test_.get();
    if (split == nullptr) return absl::FailedPreconditionError("there is no test set");
    const int64_t first = validates ? 0 : validation_samples();
    if (which == Parameters::kNew) which_ = which;
    return EvaluateSplit(*split, {positions.begin - first, positions.end - first}, *network_,
                         tables[0], StatisticsOf(tables), &which_);
  }

  std::vector<size_t> SilentDevices() const override { return group_.Silent(); }

 private:
  static int64_t SamplesOf(const DatasetSplit* split) {
    return split == nullptr ? 0 : split->dataset.count;
  }

  static BatchRange RangeOf(const MicroBatch& batch) {
    return {batch.epoch.value(), batch.positions.begin, batch.positions.end};
  }

  // Uploads the next batch while a device computes this one.
  void StageNext() {
    const DecodedBatch* const next = train_->source.Ahead();
    if (next == nullptr) return;
    BatchView view = train_->ViewOf(*next);
    view.name = ++names_;
    // If the batch is wrong, its own step reports the error.
    if (!network_->Stage(view).ok()) return;
    staged_name_ = view.name;
    staged_ = next->range;
  }

  const ModelPlan plan_;
  const std::unique_ptr<DatasetSplit> train_, validation_, test_;  // The last two may be null.
  const kernels::BackendGroup group_;
  std::unique_ptr<Network> network_;  // It uses plan_ and group_.
  std::unique_ptr<GradientStep> step_;
  Parameters which_ = Parameters::kNew;  // The parameters of an evaluation's next batch.
  uint64_t names_ = 0;                   // The names given so far.
  uint64_t staged_name_ = 0;             // 0: none is staged.
  BatchRange staged_;
};

int ThreadsOf(const v1::JobSpec& job) {
  return job.resources().has_threads() ? job.resources().threads() : 1;
}

bool HasSplit(const v1::Split& split) {
  return !split.images().empty() || !split.labels().empty() || split.files_size() > 0;
}

// Checks that a split has as many images as the scheduler counted, if it did: otherwise the order
// of an epoch would be another one.
absl::Status CheckCount(const v1::Split& split, const char* name, int64_t count) {
  if (split.block_examples().empty() || split.block_examples(0) == count) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("data.", name, ": ", count, " images, expected ",
                                          split.block_examples(0),
                                          ", as when the job was submitted"));
}

// The split `name`, or null if the job has none.
absl::StatusOr<std::unique_ptr<DatasetSplit>> LoadForEvaluation(
    const v1::JobSpec& job, const v1::Split& split, const char* name, const DatasetSplit& train,
    const Augmentation& augmentation, int decode_threads, DatasetDecoder::Into into) {
  if (!HasSplit(split)) return nullptr;
  CAPSTAN_ASSIGN_OR_RETURN(Dataset dataset, LoadDataset(job.data(), split, LabelsOf(job.model())));
  CAPSTAN_RETURN_IF_ERROR(CheckCount(split, name, dataset.count));
  const Dataset& expected = train.dataset;
  if (dataset.shape != expected.shape || dataset.classes != expected.classes) {
    return absl::InvalidArgumentError(
        absl::StrCat("data.", name, ": its images are ", ToString(dataset.shape), ", expected ",
                     ToString(expected.shape), "; its labels are of ", dataset.classes,
                     " classes or numbers, expected ", expected.classes, " as in data.train"));
  }
  // Samples come in file order and are not augmented, so that the seed does not matter.
  return std::make_unique<DatasetSplit>(std::move(dataset), /*seed=*/1, augmentation,
                                        DatasetDecoder::Mode::kEvaluation, decode_threads, into);
}

std::vector<float> LossWeights(const v1::JobSpec& job) {
  const auto& weights = LabelsOf(job.model()) == LabelKind::kFlags
                            ? job.training().positive_weights()
                            : job.training().class_weights();
  return {weights.begin(), weights.end()};
}

}  // namespace

absl::StatusOr<std::unique_ptr<Trainer>> Trainer::Create(const v1::JobSpec& job) {
  return Create(job, kernels::BackendGroup(kernels::MakeCpuBackend({.threads = ThreadsOf(job)})));
}

absl::StatusOr<std::unique_ptr<Trainer>> Trainer::Create(const v1::JobSpec& job,
                                                         kernels::BackendGroup group,
                                                         StepObserver* observer,
                                                         ExchangeFormats formats) {
  const v1::Data& data = job.data();
  CAPSTAN_ASSIGN_OR_RETURN(Dataset train, LoadDataset(data, data.train(), LabelsOf(job.model())));
  CAPSTAN_RETURN_IF_ERROR(CheckCount(data.train(), "train", train.count));
  const int64_t classes = job.model().has_classes() ? job.model().classes() : train.classes;
  CAPSTAN_ASSIGN_OR_RETURN(ModelPlan plan, PlanModel(job.model(), train.shape, classes));
  plan.loss.weights = LossWeights(job);
  CAPSTAN_ASSIGN_OR_RETURN(const Augmentation augmentation,
                           MakeAugmentation(data.augmentation(), train.shape.c));
  const uint64_t seed = SeedOf(job.training());
  // One thread cannot decode as fast as a device computes; on the CPU, computing needs the cores.
  const bool on_device = group[0].device() != nullptr;
  const int decode_threads = on_device ? HostCopies::ThreadsHere() : 1;
  const auto into = on_device ? DatasetDecoder::Into::kBytes : DatasetDecoder::Into::kNumbers;
  auto train_split = std::make_unique<DatasetSplit>(
      std::move(train), seed, augmentation, DatasetDecoder::Mode::kTraining, decode_threads, into);
  CAPSTAN_ASSIGN_OR_RETURN(auto validation,
                           LoadForEvaluation(job, data.validation(), "validation", *train_split,
                                             augmentation, decode_threads, into));
  CAPSTAN_ASSIGN_OR_RETURN(auto test, LoadForEvaluation(job, data.test(), "test", *train_split,
                                                        augmentation, decode_threads, into));
  auto trainer =
      std::make_unique<TrainerImpl>(std::move(group), std::move(plan), std::move(train_split),
                                    std::move(validation), std::move(test));
  CAPSTAN_RETURN_IF_ERROR(trainer->Prepare(job, observer, formats));
  return trainer;
}

absl::StatusOr<BatchResult> Trainer::Train(const MicroBatch& micro_batch, const Tables& tables,
                                           Tables* gradient, absl::Span<const MicroBatch> ahead) {
  CAPSTAN_RETURN_IF_ERROR(CheckTables(plan(), tables));
  CAPSTAN_RETURN_IF_ERROR(CheckTables(plan(), *gradient));
  CAPSTAN_RETURN_IF_ERROR(Forward(micro_batch, tables[0], ahead));
  return Backward(absl::MakeSpan((*gradient)[0]), StatisticsOf(*gradient));
}

Trainer::Tables MakeTrainerTables(const ModelPlan& plan) {
  Trainer::Tables tables(plan.statistics.empty() ? 1 : 2);
  tables[0].resize(static_cast<size_t>(plan.parameter_count));
  if (tables.size() > 1) tables[1].resize(static_cast<size_t>(plan.statistic_count));
  return tables;
}

}  // namespace capstan::worker
