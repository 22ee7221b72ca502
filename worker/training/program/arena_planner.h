// PlanArena: places buffers in one block of memory, so that buffers in use at the same time do not
// overlap.
//
// Greedy by size: it places the largest buffer first, and each at the lowest offset that is free
// during its lifetime (Pisarchyk and Lee 2020, arXiv 2001.03288, section 5.2). Thread safety: a
// pure function.
#ifndef CAPSTAN_WORKER_TRAINING_PROGRAM_ARENA_PLANNER_H_
#define CAPSTAN_WORKER_TRAINING_PROGRAM_ARENA_PLANNER_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace capstan::worker {

// Bytes: a cache line, and the widest vector register.
inline constexpr int64_t kArenaAlignment = 64;

struct ArenaBuffer {
  int64_t bytes = 0;         // >= 0.
  int first = 0, last = -1;  // Steps that use it, both included; none if last < first.
};

struct ArenaPlan {
  std::vector<int64_t> offsets;  // One per buffer, each a multiple of kArenaAlignment.
  int64_t bytes = 0;             // The size of the whole block.
};

// REQUIRES: the sum of all buffers' bytes, rounded up, fits 63 bits.
ArenaPlan PlanArena(absl::Span<const ArenaBuffer> buffers);

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_TRAINING_PROGRAM_ARENA_PLANNER_H_
