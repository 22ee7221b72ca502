#include "worker/training/trainer/loss_scale.h"

#include <algorithm>

namespace capstan::worker {

void LossScale::Begin() {
  if (options_.start == Options::Start::kInitial) scale_ = options_.initial;
}

void LossScale::Good() {
  if (++good_ < options_.growth_interval) return;
  good_ = 0;
  scale_ = std::min(scale_ * options_.growth, options_.max);
}

bool LossScale::Overflowed() {
  good_ = 0;
  if (scale_ <= options_.min) return false;
  scale_ = std::max(scale_ * options_.backoff, options_.min);
  return true;
}

}  // namespace capstan::worker
