// EpochOrder: the order of the samples in an epoch, which depends only on (seed, epoch).
//
// Position p of epoch e holds sample MakePermutation(EpochOrderKey(seed, e), count)[p]. The
// last epoch asked for is kept, because a task stays in one epoch for thousands of batches.
// Thread safety: thread-safe.
#ifndef CAPSTAN_WORKER_DATA_EPOCH_ORDER_H_
#define CAPSTAN_WORKER_DATA_EPOCH_ORDER_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace capstan::worker {

class EpochOrder {
 public:
  using Permutation = std::vector<uint32_t>;

  // REQUIRES: 0 <= count < 2^32.
  EpochOrder(uint64_t seed, int64_t count) : seed_(seed), count_(count) {}

  int64_t count() const { return count_; }

  // The samples of `epoch` in order. The cache and its callers share ownership: a caller may still
  // read an epoch that the cache has dropped.
  std::shared_ptr<const Permutation> Get(int32_t epoch);

 private:
  const uint64_t seed_;
  const int64_t count_;

  std::mutex mutex_;
  // Guarded by mutex_.
  int32_t cached_epoch_ = -1;
  std::shared_ptr<const Permutation> cached_;
};

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_DATA_EPOCH_ORDER_H_
