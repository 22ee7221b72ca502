#include "scheduler/core/plan/resume_point.h"

#include "absl/strings/str_cat.h"
#include "scheduler/core/plan/epoch_plan.h"
#include "scheduler/core/plan/training_time.h"

namespace capstan::scheduler {
namespace {

absl::Status CheckUntrained(const std::vector<Range>& untrained, int64_t samples) {
  int64_t end = 0;
  for (size_t i = 0; i < untrained.size(); ++i) {
    const Range& range = untrained[i];
    if (range.begin >= end && range.end > range.begin && range.end <= samples) {
      end = range.end;
      continue;
    }
    return absl::DataLossError(absl::StrCat("untrained[", i, "]: [", range.begin, ", ", range.end,
                                            "), expected a range of [", end, ", ", samples, ")"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckResumePoint(const ResumePoint& at, const JobPlan& plan) {
  const EpochPlan epochs(plan);
  Range steps{0, kCounterMax};
  int64_t samples = 0;  // After the last epoch no samples are left.
  if (at.epoch.value() >= 0 && at.epoch.value() < epochs.epochs()) {
    samples = epochs.Samples(at.epoch);
    if (plan.consistency.synchronous()) steps = epochs.Steps(at.epoch);
  }
  absl::Status status;
  status.Update(CheckCount("incarnation", at.incarnation.value()));
  status.Update(CheckCount("membership", at.membership.value()));
  status.Update(CheckCount("epoch", at.epoch.value(), kEpochMax));
  status.Update(CheckCount("results", static_cast<int64_t>(at.results.size()), at.epoch.value()));
  status.Update(CheckRange("iteration", at.iteration.value(), steps.begin, steps.end));
  status.Update(CheckCount("batches", at.batches));
  status.Update(CheckTrained(at.trained));
  status.Update(CheckUntrained(at.untrained, samples));
  return status;
}

}  // namespace capstan::scheduler
