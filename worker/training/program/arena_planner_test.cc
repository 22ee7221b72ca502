#include "worker/training/program/arena_planner.h"

#include <catch2/catch.hpp>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/random/philox.h"

namespace capstan::worker::arena_planner_test {
namespace {

TEST_CASE("Arena: buffers that never live together share their place", "[worker][training]") {
  const ArenaPlan plan = PlanArena({{100, 0, 1}, {90, 2, 3}, {128, 4, 4}});
  CHECK(plan.bytes == 128);
  CHECK(plan.offsets == std::vector<int64_t>{0, 0, 0});
}

TEST_CASE("Arena: a step's last use and another's first use are one time", "[worker][training]") {
  const ArenaPlan plan = PlanArena({{64, 0, 1}, {64, 1, 2}, {64, 2, 3}});
  CHECK(plan.bytes == 128);
  CHECK(plan.offsets[0] != plan.offsets[1]);
  CHECK(plan.offsets[1] != plan.offsets[2]);
}

TEST_CASE("Arena: nothing is asked for where there is nothing to keep", "[worker][training]") {
  CHECK(PlanArena({}).bytes == 0);
  CHECK(PlanArena({{0, 0, 5}, {64, 3, 2}}).bytes == 0);
}

TEST_CASE("Arena: random lifetimes never overlap in time and place at once", "[worker][training]") {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    std::vector<ArenaBuffer> buffers;
    int64_t sum = 0;
    for (uint64_t i = 0; i < 60; ++i) {
      const auto words = Philox4x32(seed, i);
      const int first = static_cast<int>(words[0] % 40);
      buffers.push_back({words[1] % 5000, first, first + static_cast<int>(words[2] % 8)});
      sum += (buffers.back().bytes + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment;
    }
    const ArenaPlan plan = PlanArena(buffers);
    CHECK(plan.bytes < sum);
    for (size_t a = 0; a < buffers.size(); ++a) {
      CHECK(plan.offsets[a] % kArenaAlignment == 0);
      CHECK(plan.offsets[a] + buffers[a].bytes <= plan.bytes);
      for (size_t b = 0; b < a; ++b) {
        const bool in_time =
            buffers[a].first <= buffers[b].last && buffers[b].first <= buffers[a].last;
        const bool in_place = plan.offsets[a] < plan.offsets[b] + buffers[b].bytes &&
                              plan.offsets[b] < plan.offsets[a] + buffers[a].bytes;
        CHECK_FALSE((in_time && in_place));
      }
    }
  }
}

}  // namespace
}  // namespace capstan::worker::arena_planner_test
