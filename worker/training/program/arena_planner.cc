#include "worker/training/program/arena_planner.h"

#include <algorithm>
#include <cstddef>
#include <numeric>

namespace capstan::worker {
namespace {

int64_t RoundUp(int64_t bytes) {
  return (bytes + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment;
}

bool LiveTogether(const ArenaBuffer& a, const ArenaBuffer& b) {
  return a.first <= b.last && b.first <= a.last;
}

}  // namespace

ArenaPlan PlanArena(absl::Span<const ArenaBuffer> buffers) {
  ArenaPlan plan;
  plan.offsets.assign(buffers.size(), 0);
  std::vector<size_t> by_size(buffers.size());
  std::iota(by_size.begin(), by_size.end(), size_t{0});
  std::stable_sort(by_size.begin(), by_size.end(),
                   [&](size_t a, size_t b) { return buffers[a].bytes > buffers[b].bytes; });
  std::vector<size_t> placed;  // Ordered by offset.
  for (const size_t i : by_size) {
    const int64_t bytes = RoundUp(buffers[i].bytes);
    if (bytes == 0 || buffers[i].last < buffers[i].first) continue;
    int64_t offset = 0;
    for (const size_t other : placed) {
      if (!LiveTogether(buffers[i], buffers[other])) continue;
      if (offset + bytes <= plan.offsets[other]) break;  // Fits before it.
      offset = std::max(offset, plan.offsets[other] + RoundUp(buffers[other].bytes));
    }
    plan.offsets[i] = offset;
    plan.bytes = std::max(plan.bytes, offset + bytes);
    placed.insert(
        std::upper_bound(placed.begin(), placed.end(), i,
                         [&](size_t a, size_t b) { return plan.offsets[a] < plan.offsets[b]; }),
        i);
  }
  return plan;
}

}  // namespace capstan::worker
