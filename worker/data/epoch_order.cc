#include "worker/data/epoch_order.h"

#include "common/random/permutation.h"
#include "common/random/philox.h"

namespace capstan::worker {
namespace {

constexpr uint64_t kOrderStream = 1;

}  // namespace

std::shared_ptr<const EpochOrder::Permutation> EpochOrder::Get(int32_t epoch) {
  // Held while the permutation is made: callers of one epoch want the same one, not their own.
  const std::lock_guard lock(mutex_);
  if (cached_ == nullptr || cached_epoch_ != epoch) {
    const uint64_t key = MixKey(MixKey(seed_, kOrderStream), static_cast<uint64_t>(epoch));
    cached_ = std::make_shared<const Permutation>(MakePermutation(key, count_));
    cached_epoch_ = epoch;
  }
  return cached_;
}

}  // namespace capstan::worker
