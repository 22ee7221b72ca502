#include "worker/data/epoch_order.h"

#include "common/random/permutation.h"

namespace capstan::worker {

std::shared_ptr<const EpochOrder::Permutation> EpochOrder::Get(int32_t epoch) {
  // Held while the permutation is made, so that it is made once for all callers of an epoch.
  const std::lock_guard lock(mutex_);
  if (cached_ == nullptr || cached_epoch_ != epoch) {
    cached_ =
        std::make_shared<const Permutation>(MakePermutation(EpochOrderKey(seed_, epoch), count_));
    cached_epoch_ = epoch;
  }
  return cached_;
}

}  // namespace capstan::worker
