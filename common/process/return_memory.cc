#include "common/process/return_memory.h"

#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "absl/time/clock.h"

namespace capstan {
namespace {

// The resident memory that the process shares with no file and no other process; 0: not known.
int64_t OwnBytes() {
  int64_t pages = 0;
  int64_t resident = 0;
  int64_t shared = 0;
  std::ifstream("/proc/self/statm") >> pages >> resident >> shared;
  return (resident - shared) * sysconf(_SC_PAGE_SIZE);
}

}  // namespace

bool ReturnPolicy::IsDue(int64_t size, absl::Time now) {
  size_ = std::min(size_, size);
  return size - size_ > kGrowthBytes && now >= not_before_;
}

void ReturnPolicy::Returned(int64_t before, int64_t after, absl::Time now) {
  const int64_t bytes = std::max<int64_t>(before - after, 0);
  absl::Duration wait = absl::Seconds(static_cast<double>(bytes) / kReturnedPerSecond);
  if (after - size_ > kGrowthBytes) {
    wait = std::max(wait, patience_);
    patience_ = std::min(2 * patience_, kPatienceMax);
  } else {
    size_ = after;
    patience_ = kPatienceMin;
  }
  not_before_ = now + wait;
}

MemoryReturner::MemoryReturner() : policy_(OwnBytes()) {}

void MemoryReturner::Tick() {
  const int64_t before = OwnBytes();
  if (!policy_.IsDue(before, absl::Now())) return;
  malloc_trim(0);
  policy_.Returned(before, OwnBytes(), absl::Now());
}

}  // namespace capstan
