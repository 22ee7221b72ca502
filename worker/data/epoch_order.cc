#include "worker/data/epoch_order.h"

#include "common/random/permutation.h"
#include "common/random/philox.h"

namespace capstan::worker {
namespace {

constexpr uint64_t kOrderStream = 1;

}  // namespace

uint64_t EpochOrderKey(uint64_t seed, int32_t epoch) {
  return MixKey(MixKey(seed, kOrderStream), static_cast<uint64_t>(epoch));
}

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
