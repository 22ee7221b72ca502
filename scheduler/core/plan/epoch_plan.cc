#include "scheduler/core/plan/epoch_plan.h"

#include <algorithm>

namespace capstan::scheduler {
namespace {

int64_t CeilDivide(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace

EpochPlan::EpochPlan(const JobPlan& plan)
    : batch_size_(plan.batch_size),
      step_samples_(plan.consistency.synchronous() ? plan.batch_size * plan.consistency.slots
                                                   : plan.batch_size),
      train_count_(plan.consistency.backups > 0
                       ? plan.train_count - plan.train_count % step_samples_
                       : plan.train_count),
      slots_(plan.consistency.slots),
      steps_per_epoch_(CeilDivide(train_count_, step_samples_)),
      steps_total_(steps_per_epoch_ * plan.epochs) {
  if (plan.iterations_max > 0) steps_total_ = std::min(steps_total_, plan.iterations_max);
  epochs_ = static_cast<int>(CeilDivide(steps_total_, steps_per_epoch_));
}

Range EpochPlan::Steps(Epoch epoch) const {
  const int64_t begin = epoch.value() * steps_per_epoch_;
  return {begin, std::min(begin + steps_per_epoch_, steps_total_)};
}

int64_t EpochPlan::Samples(Epoch epoch) const {
  return std::min(train_count_, Steps(epoch).size() * step_samples_);
}

int64_t EpochPlan::samples_total() const {
  const Epoch last(epochs_ - 1);
  return SamplesBefore(last) + Samples(last);
}

int64_t EpochPlan::SlotSamples(SlotId slot, int64_t iterations) const {
  if (iterations == 0) return 0;
  const int64_t last = iterations - 1;  // Only an epoch's last iteration is cut short.
  const int64_t last_begin = (last * slots_ + slot.value()) * batch_size_;
  return last * batch_size_ + std::clamp(train_count_ - last_begin, int64_t{0}, batch_size_);
}

}  // namespace capstan::scheduler
