// LogHistogram: counts values by their size, in one bucket for each power of two.
//
// Recording is two additions to atomics, without order: cheap enough for every message.
// Thread safety: thread-safe; counts that are read while others record may be of several moments.
#ifndef CAPSTAN_COMMON_OBSERVABILITY_LOG_HISTOGRAM_H_
#define CAPSTAN_COMMON_OBSERVABILITY_LOG_HISTOGRAM_H_

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace capstan {

class LogHistogram {
 public:
  // Bucket 0 counts values below 1, bucket i those of [2^(i-1), 2^i), the last one all above.
  static constexpr size_t kBuckets = 48;

  void Record(int64_t value) {
    const auto magnitude = static_cast<uint64_t>(std::max<int64_t>(value, 0));
    const auto bucket = std::min<size_t>(std::bit_width(magnitude), kBuckets - 1);
    counts_[bucket].fetch_add(1, std::memory_order_relaxed);
    sum_.fetch_add(value, std::memory_order_relaxed);
  }

  // Indexed by bucket, without the empty ones at the end.
  std::vector<int64_t> Counts() const {
    std::vector<int64_t> counts;
    for (const auto& count : counts_) counts.push_back(count.load(std::memory_order_relaxed));
    while (!counts.empty() && counts.back() == 0) counts.pop_back();
    return counts;
  }
  int64_t sum() const { return sum_.load(std::memory_order_relaxed); }

 private:
  std::array<std::atomic<int64_t>, kBuckets> counts_ = {};
  std::atomic<int64_t> sum_ = 0;
};

// The least bound 2^i that at least `share` of the values lie below; 0 if there are none.
// REQUIRES: 0 < share <= 1.
template <typename Counts>
int64_t PercentileBound(const Counts& counts, double share) {
  int64_t all = 0;
  for (const int64_t count : counts) all += count;
  int64_t below = 0, bound = 1;
  for (const int64_t count : counts) {
    below += count;
    if (below > 0 && static_cast<double>(below) >= share * static_cast<double>(all)) return bound;
    bound *= 2;
  }
  return 0;
}

}  // namespace capstan

#endif  // CAPSTAN_COMMON_OBSERVABILITY_LOG_HISTOGRAM_H_
