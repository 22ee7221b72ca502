// MemoryReturner: gives the kernel back what the allocator keeps without need.
//
// glibc returns memory at the end of its heaps alone. Thousands of calls or connections at once
// leave heaps that are nearly empty but for a few blocks near their ends, and the process stays as
// large as it was at its worst. malloc_trim(3) returns the empty pages between the blocks, too; but
// what is needed again at once costs a page fault for each page. So it is called when the process
// has grown, and less often the more it returns: a process that needs the memory again and again
// has at most kReturnedPerSecond to fault in. What was in use then may be free later without the
// process becoming smaller, so a process that stays large is looked at again, ever more seldom.
//
// Thread safety: thread-compatible.
#ifndef CAPSTAN_COMMON_PROCESS_RETURN_MEMORY_H_
#define CAPSTAN_COMMON_PROCESS_RETURN_MEMORY_H_

#include <cstdint>

#include "absl/time/time.h"

namespace capstan {

// Decides when memory is returned. Pure: sizes and times come in.
class ReturnPolicy {
 public:
  static constexpr int64_t kGrowthBytes = int64_t{64} << 20;
  static constexpr int64_t kReturnedPerSecond = int64_t{16} << 20;
  // The pause after a return that has left the process large; it doubles each time.
  static constexpr absl::Duration kPatienceMin = absl::Seconds(5);
  static constexpr absl::Duration kPatienceMax = absl::Minutes(10);

  // `size`: of the memory that the process has for itself, in bytes.
  explicit ReturnPolicy(int64_t size) : size_(size) {}

  // True if memory is to be returned now; Returned() then follows.
  bool IsDue(int64_t size, absl::Time now);
  // Notes that the process had `before` bytes until memory was returned, and has `after` now.
  void Returned(int64_t before, int64_t after, absl::Time now);

 private:
  int64_t size_;  // The smallest since the last return that made the process small.
  absl::Duration patience_ = kPatienceMin;
  absl::Time not_before_ = absl::InfinitePast();
};

class MemoryReturner {
 public:
  // How often Tick is to be called: a daemon is small again soon after it was flooded.
  static constexpr absl::Duration kInterval = absl::Seconds(5);

  MemoryReturner();
  void Tick();  // Returns what is due. Without /proc it does nothing.

 private:
  ReturnPolicy policy_;
};

}  // namespace capstan

#endif  // CAPSTAN_COMMON_PROCESS_RETURN_MEMORY_H_
