#include "scheduler/core/job/parts/job_epochs.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace capstan::scheduler {

JobEpochs::JobEpochs(const JobPlan& plan)
    : plan_(plan),
      job_(plan.id),
      decide_(plan.decide),
      has_accuracy_(HasAccuracy(plan.objective)),
      validation_count_(plan.validation_count),
      test_count_(plan.test_count) {}

absl::Status JobEpochs::Check() {
  const int64_t last = plan_.epochs() - 1;
  absl::Status status = CheckCount("epoch", epoch_.value(), last);
  if (returned_to_) {
    status.Update(CheckCount("epoch that it returned to", returned_to_->value(), last));
  }
  if (final_test_ && ModelResult() == nullptr) {
    status.Update(absl::DataLossError(absl::StrCat(
        "results: expected that of epoch ", ModelEpoch().value(), ", whose model is tested")));
  }
  return status;
}

// ---------------------------------------------------------------- the present epoch

double JobEpochs::Start(Epoch epoch, Instant started) {
  epoch_ = epoch;
  started_ = started;
  present_ = {.epoch = epoch, .learning_rate_factor = Decisions().learning_rate_factor};
  final_test_ = false;
  return present_.learning_rate_factor;
}

void JobEpochs::FinishTraining(const JobMetrics::Sums& sums) {
  present_.train_loss = sums.mean_loss();
  present_.train_accuracy = has_accuracy_ ? sums.accuracy() : 0;
}

EpochDone JobEpochs::Finish(Instant now) {
  present_.duration = now - started_;
  results_.push_back(present_);
  return {job_, plan_.Steps(epoch_).end, samples_end(), present_};
}

// ---------------------------------------------------------------- evaluation

Range JobEpochs::Evaluated() const {
  if (validation_count_ > 0 && !final_test_) return {0, validation_count_};
  return {validation_count_, validation_count_ + test_count_};
}

std::optional<ModelTested> JobEpochs::TakeFigures(const EvaluationFigures& figures) {
  EpochResult& result = final_test_ ? *ModelResult() : present_;
  if (validation_count_ > 0 && !final_test_) {
    result.validation = figures;
    return std::nullopt;
  }
  result.test_samples = figures.samples;
  result.test_loss = figures.loss;
  result.test_accuracy = figures.accuracy.value_or(0);
  result.test_rmse = figures.rmse;
  result.test_auc = figures.auc;
  result.test_mae = figures.mae;
  result.test_f1 = figures.f1;
  result.test_top5_accuracy = figures.top5_accuracy;
  if (!final_test_) return std::nullopt;
  final_test_ = false;
  return ModelTested{job_, plan_.Steps(result.epoch).end, result};
}

bool JobEpochs::StartFinalTest() {
  const EpochResult* const result = ModelResult();
  final_test_ =
      validation_count_ > 0 && test_count_ > 0 && result != nullptr && result->test_samples == 0;
  return final_test_;
}

EpochResult* JobEpochs::ModelResult() {
  const auto result =
      std::find_if(results_.begin(), results_.end(),
                   [this](const EpochResult& each) { return each.epoch == ModelEpoch(); });
  return result == results_.end() ? nullptr : &*result;
}

// ---------------------------------------------------------------- decisions

bool JobEpochs::IsLast() const { return epoch_.value() + 1 >= plan_.epochs() || Decisions().stop; }

bool JobEpochs::MustKeep() const {
  return decide_.keep_best && Decisions().best == epoch_ && !IsLast();
}

bool JobEpochs::MustReturnTo(const RestoreFrom* best) const {
  return decide_.keep_best && !returned() && best != nullptr && best->at.epoch <= epoch_ &&
         Decisions().best != epoch_;
}

std::optional<Epoch> JobEpochs::BestEpoch() const {
  if (!decide_.keep_best) return std::nullopt;
  return returned() ? ModelEpoch() : Decisions().best;
}

// ---------------------------------------------------------------- quiet moments

void JobEpochs::AddTo(ResumePoint* point, Moment moment, Instant now) const {
  point->results = results_;
  if (moment == Moment::kWithin) {
    point->epoch = epoch_;
    point->epoch_time = now - started_;
    return;
  }
  point->epoch = epoch_.Next();
  point->iteration = Iteration(plan_.Steps(epoch_).end);
  if (point->epoch.value() < plan_.epochs()) {
    point->untrained = {{0, plan_.Samples(point->epoch)}};
  }
}

bool JobEpochs::Resume(const ResumePoint& at) {
  if (returned()) return false;  // The job has the results of all epochs, and keeps them.
  results_ = at.results;
  const bool over = at.epoch.value() >= plan_.epochs();
  if (!over && !Decisions().stop) return true;
  epoch_ = Epoch(over ? plan_.epochs() - 1 : at.epoch.value() - 1);
  return false;
}

}  // namespace capstan::scheduler
