// JobEpochs: the present epoch of a job, the results of the earlier ones, and the decisions that
// follow from them: the next epoch, the end of training, the model to keep or to go back to, the
// last test.
//
//   Start(e) --FinishTraining, TakeFigures if it is evaluated, Finish--> has the result of e
//     ^---- not IsLast: Start(e + 1) ----/             |
//     IsLast --> MustReturnTo(the best) --ReturnTo, the job goes back--> all is trained
//     all is trained --StartFinalTest, TakeFigures--> the model's epoch is tested, too
//
// Called by JobRun and its parts. All decisions follow from the results (epoch_decisions.h). Pure:
// no clock; the time comes in. Thread safety: thread-compatible.
// Invariant: results are of epochs in their order, none twice.
#ifndef CAPSTAN_SCHEDULER_CORE_JOB_PARTS_JOB_EPOCHS_H_
#define CAPSTAN_SCHEDULER_CORE_JOB_PARTS_JOB_EPOCHS_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "common/metrics/evaluation.h"
#include "common/time/instant.h"
#include "common/types/ids.h"
#include "scheduler/core/messages/events.h"
#include "scheduler/core/messages/loaded_check.h"
#include "scheduler/core/plan/epoch_decisions.h"
#include "scheduler/core/plan/epoch_plan.h"
#include "scheduler/core/plan/job_metrics.h"
#include "scheduler/core/plan/job_plan.h"
#include "scheduler/core/plan/resume_point.h"

namespace capstan::scheduler {

class JobEpochs {
 public:
  explicit JobEpochs(const JobPlan& plan);

  // ---- the present epoch
  double Start(Epoch epoch, Instant started);  // Returns the factor of its learning rate.
  Epoch epoch() const { return epoch_; }
  int64_t samples_before() const { return plan_.SamplesBefore(epoch_); }
  int64_t samples_end() const { return samples_before() + plan_.Samples(epoch_); }
  const EpochPlan& plan() const { return plan_; }
  void FinishTraining(const JobMetrics::Sums& sums);
  EpochDone Finish(Instant now);

  // ---- evaluation
  // Returns the positions to evaluate: validation samples come first, test samples after them.
  // Empty: there are none.
  Range Evaluated() const;
  // Takes the figures of the complete evaluation. Returns an event if it was the final test.
  std::optional<ModelTested> TakeFigures(const EvaluationFigures& figures);
  // False: the model needs no test on the test split.
  bool StartFinalTest();
  bool in_final_test() const { return final_test_; }
  void CancelFinalTest() { final_test_ = false; }

  // ---- decisions
  bool IsLast() const;    // REQUIRES for these two: the epoch's result is there.
  bool MustKeep() const;  // Its model is the best so far, and others may follow.
  // True if the checkpoint `best` has the best epoch's model, and the tables have another. Null: no
  // checkpoint has it.
  bool MustReturnTo(const RestoreFrom* best) const;
  void ReturnTo(const RestoreFrom& best) { returned_to_ = Epoch(best.at.epoch.value() - 1); }
  void CancelReturn() { returned_to_.reset(); }
  bool returned() const { return returned_to_.has_value(); }  // Or it is about to.
  // The epoch whose model the tables have, once training is over.
  Epoch ModelEpoch() const { return returned_to_.value_or(epoch_); }
  std::optional<Epoch> BestEpoch() const;
  const std::vector<EpochResult>& results() const { return results_; }

  // ---- quiet moments
  enum class Moment { kWithin, kAfter };
  void AddTo(ResumePoint* point, Moment moment, Instant now) const;
  bool Resume(const ResumePoint& at);  // False: nothing is left to train.

  // ---- durable state, in the form of scheduler/store/archive.h
  template <typename Archive>
  void serialize(Archive& archive) {
    archive(epoch_, started_, present_, results_, returned_to_, final_test_);
    CheckLoaded(archive, [this] { return Check(); });
  }

 private:
  absl::Status Check();  // Errors: kDataLoss  an epoch that the job does not have.
  EpochDecisions Decisions() const { return DecideBy(decide_, results_); }
  EpochResult* ModelResult();  // Null: its epoch was another job's.

  const EpochPlan plan_;
  const JobId job_;
  const DecisionPlan decide_;
  const bool has_accuracy_;
  const int64_t validation_count_;
  const int64_t test_count_;
  Epoch epoch_;
  Instant started_;
  EpochResult present_;  // The result of epoch_, as far as it is known.
  std::vector<EpochResult> results_;
  std::optional<Epoch> returned_to_;  // The best epoch; training is over.
  bool final_test_ = false;           // The evaluation is that of the model, on the test split.
};

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_CORE_JOB_PARTS_JOB_EPOCHS_H_
