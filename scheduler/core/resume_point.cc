#include "scheduler/core/resume_point.h"

#include <limits>

#include "absl/strings/str_cat.h"
#include "scheduler/core/epoch_plan.h"

namespace capstan::scheduler {
namespace {

template <typename Value>
absl::Status CheckRange(const char* field, Value value, Value low, Value high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(field, ": ", value, ", expected ", low, " to ", high));
}

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
  const int64_t count_max = int64_t{kCounterMax};
  const EpochPlan epochs(plan);
  Range steps{0, count_max};
  int64_t samples = 0;  // After the last epoch no samples are left.
  if (at.epoch.value() >= 0 && at.epoch.value() < epochs.epochs()) {
    samples = epochs.Samples(at.epoch);
    if (plan.consistency.synchronous()) steps = epochs.Steps(at.epoch);
  }
  absl::Status status;
  status.Update(CheckRange("incarnation", at.incarnation.value(), uint64_t{0}, kCounterMax));
  status.Update(CheckRange("membership", at.membership.value(), uint64_t{0}, kCounterMax));
  status.Update(CheckRange("epoch", int64_t{at.epoch.value()}, int64_t{0},
                           int64_t{std::numeric_limits<int32_t>::max()} - 1));
  status.Update(CheckRange("iteration", at.iteration.value(), steps.begin, steps.end));
  status.Update(CheckRange("batches", at.batches, int64_t{0}, count_max));
  status.Update(CheckUntrained(at.untrained, samples));
  return status;
}

}  // namespace capstan::scheduler
