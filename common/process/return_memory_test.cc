#include "common/process/return_memory.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <vector>

namespace capstan::return_memory_test {
namespace {

constexpr int64_t kMib = int64_t{1} << 20;
const absl::Time kBegin = absl::FromUnixSeconds(1'700'000'000);

TEST_CASE("Return policy: memory is returned once the process has grown", "[process]") {
  ReturnPolicy policy(100 * kMib);
  CHECK_FALSE(policy.IsDue(100 * kMib, kBegin));
  CHECK_FALSE(policy.IsDue(164 * kMib, kBegin));
  CHECK(policy.IsDue(165 * kMib, kBegin));
  policy.Returned(165 * kMib, 110 * kMib, kBegin);
  CHECK_FALSE(policy.IsDue(174 * kMib, kBegin + absl::Hours(1)));
  CHECK(policy.IsDue(175 * kMib, kBegin + absl::Hours(1)));
}

TEST_CASE("Return policy: a process that stays large is looked at ever more seldom", "[process]") {
  ReturnPolicy policy(100 * kMib);
  absl::Time now = kBegin;
  for (const int seconds : {5, 10, 20, 40, 80, 160, 320, 600, 600}) {
    CHECK(policy.IsDue(900 * kMib, now));
    policy.Returned(900 * kMib, 890 * kMib, now);
    CHECK_FALSE(policy.IsDue(900 * kMib, now + absl::Seconds(seconds - 1)));
    now += absl::Seconds(seconds);
  }
  // Memory in use has become free: the process is small again, and grows again.
  CHECK(policy.IsDue(900 * kMib, now));
  policy.Returned(900 * kMib, 110 * kMib, now);
  CHECK_FALSE(policy.IsDue(170 * kMib, now + absl::Hours(1)));
  CHECK(policy.IsDue(300 * kMib, now + absl::Hours(1)));
  policy.Returned(300 * kMib, 290 * kMib, now + absl::Hours(1));
  CHECK(policy.IsDue(300 * kMib, now + absl::Hours(1) + absl::Seconds(5)));
}

TEST_CASE("Return policy: the more was returned, the longer it takes until the next time",
          "[process]") {
  ReturnPolicy policy(100 * kMib);
  CHECK(policy.IsDue(420 * kMib, kBegin));
  policy.Returned(420 * kMib, 100 * kMib, kBegin);
  CHECK_FALSE(policy.IsDue(420 * kMib, kBegin + absl::Seconds(19)));
  CHECK(policy.IsDue(420 * kMib, kBegin + absl::Seconds(20)));
}

// A sanitizer has an allocator of its own, which keeps what is freed.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
int64_t ResidentBytes() {
  int64_t pages = 0;
  int64_t resident = 0;
  std::ifstream("/proc/self/statm") >> pages >> resident;
  return resident * 4096;
}

TEST_CASE("Memory returner: pages between blocks that are in use go back", "[process]") {
  MemoryReturner returner;
  const int64_t before = ResidentBytes();
  // The last block stays, so glibc returns nothing by itself.
  std::vector<void*> blocks;
  for (int i = 0; i < 4000; ++i) {
    blocks.push_back(std::malloc(64 << 10));
    std::memset(blocks.back(), 1, 64 << 10);
  }
  void* const last = std::malloc(64 << 10);
  for (void* block : blocks) std::free(block);
  REQUIRE(ResidentBytes() - before > 100 * kMib);
  returner.Tick();
  CHECK(ResidentBytes() - before < 20 * kMib);
  std::free(last);
}
#endif

}  // namespace
}  // namespace capstan::return_memory_test
