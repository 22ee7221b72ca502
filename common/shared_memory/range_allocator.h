// RangeAllocator: gives out ranges of a piece of memory. First fit, so that little use stays in few
// pages.
//
// Thread safety: thread-compatible.
#ifndef CAPSTAN_COMMON_SHARED_MEMORY_RANGE_ALLOCATOR_H_
#define CAPSTAN_COMMON_SHARED_MEMORY_RANGE_ALLOCATOR_H_

#include <cstdint>
#include <map>
#include <optional>

namespace capstan {

class RangeAllocator {
 public:
  static constexpr int64_t kAlignment = 64;  // Bytes, of every offset.

  // Bytes that a range takes: up to where the next one may begin.
  static constexpr int64_t RoundUp(int64_t bytes) {
    return (bytes + kAlignment - 1) / kAlignment * kAlignment;
  }

  explicit RangeAllocator(int64_t size) : size_(size) {}  // Bytes.

  // Takes `bytes` bytes that are free and returns their offset; none if there is no such gap.
  // REQUIRES: bytes > 0.
  std::optional<int64_t> Take(int64_t bytes);
  bool Fits(int64_t bytes) const { return FirstGap(bytes).has_value(); }
  // REQUIRES: Take returned the offset, and it was not given back since.
  void Give(int64_t offset) { taken_.erase(offset); }

  int64_t size() const { return size_; }

 private:
  std::optional<int64_t> FirstGap(int64_t bytes) const;

  const int64_t size_;
  std::map<int64_t, int64_t> taken_;  // Begin to end.
};

}  // namespace capstan

#endif  // CAPSTAN_COMMON_SHARED_MEMORY_RANGE_ALLOCATOR_H_
