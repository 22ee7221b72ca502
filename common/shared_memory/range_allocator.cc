#include "common/shared_memory/range_allocator.h"

namespace capstan {
std::optional<int64_t> RangeAllocator::FirstGap(int64_t bytes) const {
  int64_t begin = 0;
  for (const auto& [taken_begin, taken_end] : taken_) {
    if (taken_begin - begin >= bytes) return begin;
    begin = taken_end;
  }
  if (size_ - begin >= bytes) return begin;
  return std::nullopt;
}

std::optional<int64_t> RangeAllocator::Take(int64_t bytes) {
  const std::optional<int64_t> begin = FirstGap(bytes);
  if (begin.has_value()) taken_[*begin] = RoundUp(*begin + bytes);
  return begin;
}

}  // namespace capstan
