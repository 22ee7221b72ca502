// What follows from the figures of epochs: the best one is kept, and the job goes back to it.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "scheduler/core/job_run.h"

namespace capstan::scheduler {

bool JobRun::TrainingIsOver() const {
  return epoch_.value() + 1 >= epochs_.epochs() || DecideBy(plan_.decide, results_).stop;
}

// The epoch that has ended is the best one so far, and others may follow: its model is to be there
// when they have.
bool JobRun::MustKeep() const {
  return plan_.decide.keep_best && DecideBy(plan_.decide, results_).best == epoch_ &&
         !TrainingIsOver();
}

// The job stands until its checkpoint is complete, whatever becomes of the first ones: once it has
// trained on, this model is lost. True if the next epoch was entered.
bool JobRun::KeepBest(Instant now, Events& events) {
  if (!checkpoints_.IsIdle()) return false;
  const std::vector<RestoreFrom>& complete = checkpoints_.complete();
  const bool kept = !complete.empty() && complete.back().at.epoch == epoch_.Next() &&
                    complete.back().at.results.size() == results_.size();
  if (!kept && pause_.MayTryAgain()) {
    if (!pause_.TryAgain(now)) return false;
    ++decisions_;
    checkpoints_.Ask();
    checkpoints_.Begin(*routing_, PointNow(pause_.at(), now), epochs_.Steps(epoch_).end, now);
    return false;
  }
  if (kept) checkpoints_.KeepNewest();
  pause_.EndKeeping();
  LeaveCheckpoint(now, events);
  return true;
}

const RestoreFrom* JobRun::BestCheckpoint() const {
  for (const RestoreFrom& one : checkpoints_.complete()) {
    if (one.id == checkpoints_.kept()) return &one;
  }
  return nullptr;
}

// Nothing more is to be trained, and the tables have another model than the best epoch's. A job
// that a user has saved and stopped leaves the model of that moment.
bool JobRun::MustReturn() const {
  const RestoreFrom* const best = BestCheckpoint();
  return plan_.decide.keep_best && !IsSaved() && !returned_to_best_ && best != nullptr &&
         best->at.epoch <= epoch_ && DecideBy(plan_.decide, results_).best != epoch_;
}

// As after a loss of all shards, but that nothing is trained again. False: there are too few
// servers, for now.
bool JobRun::ReturnToBest(Instant now, Events& events) {
  returned_to_best_ = true;
  if (!GoBack(now, events)) {
    returned_to_best_ = false;
    return false;
  }
  recovery_.Placed(now);
  TakeRouting(now, events);
  return true;
}

Epoch JobRun::ModelEpoch() const {
  const RestoreFrom* const best = BestCheckpoint();
  return returned_to_best_ && best != nullptr ? Epoch(best->at.epoch.value() - 1) : epoch_;
}

EpochResult* JobRun::ModelResult() {
  for (EpochResult& result : results_) {
    if (result.epoch == ModelEpoch()) return &result;
  }
  return nullptr;
}

// The export follows, but for what it needs: the best model, and its figures on the test split.
void JobRun::EnterEnd(Events& events) {
  const EpochResult* const result = ModelResult();
  const bool tested = plan_.validation_count == 0 || plan_.test_count == 0 || result == nullptr ||
                      result->test_samples > 0;
  if (MustReturn() || tested) return SetPhase(JobPhase::kExporting, events);
  final_test_ = true;
  EnterEvaluating(events);
}

void JobRun::FinishTest(Events& events) {
  EpochResult& result = *ModelResult();
  TakeFigures(&result);
  final_test_ = false;
  events.push_back(ModelTested{plan_.id, epochs_.Steps(result.epoch).end, result});
  SetPhase(JobPhase::kExporting, events);
}

std::optional<Epoch> JobRun::BestEpoch() const {
  if (!plan_.decide.keep_best) return std::nullopt;
  if (returned_to_best_) return ModelEpoch();
  return DecideBy(plan_.decide, results_).best;
}

}  // namespace capstan::scheduler
