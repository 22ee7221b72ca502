#include "server/core/messages/clock_ticks.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <vector>

#include "common/testing/status_matchers.h"

namespace capstan::server::clock_ticks_test {
namespace {

TEST_CASE("Clock ticks: rows are too old once they were updated before a tick that is",
          "[server][core]") {
  ClockTicks ticks(64);
  CHECK(ticks.EvictBefore() == Version(0));
  for (int64_t second = 1; second <= 64; ++second) ticks.Note(second, Version(10 * second));
  CHECK(ticks.EvictBefore() == Version(0));
  ticks.Note(65, Version(650));
  CHECK(ticks.EvictBefore() == Version(11));  // Version 10 was made before the first tick.
  ticks.Note(67, Version(670));
  CHECK(ticks.EvictBefore() == Version(31));
  SECTION("an earlier or repeated time changes nothing") {
    const std::vector<ClockTick> all = ticks.all();
    ticks.Note(67, Version(700));
    ticks.Note(5, Version(701));
    CHECK(ticks.all() == all);
  }
  SECTION("a job that stood still for long has one old tick left") {
    ticks.Note(1000, Version(671));
    CHECK(ticks.all() == std::vector<ClockTick>{{67, Version(670)}, {1000, Version(671)}});
    CHECK(ticks.EvictBefore() == Version(671));
  }
}

// Another table of the job has a shorter time to live.
TEST_CASE("Clock ticks: ticks that are close for the time to live merge", "[server][core]") {
  constexpr int64_t kTtl = 128'000;
  constexpr int64_t kApart = kTtl / 128;
  const int64_t step = GENERATE(1, 7, 999, 1001, 2000);
  ClockTicks ticks(kTtl);
  size_t most = 0;
  int64_t early = 0, late = 0;
  for (int64_t clock = step; clock < 4 * kTtl; clock += step) {
    ticks.Note(clock, Version(clock));  // Each second makes a version.
    most = std::max(most, ticks.all().size());
    const int64_t young_from = ticks.EvictBefore().value();
    early += young_from > std::max<int64_t>(0, clock - kTtl + 1);
    const bool has_old = clock >= kTtl + kApart + 2 * step;
    late += has_old && young_from <= clock - kTtl - (kApart + step);
  }
  CHECK(early == 0);
  CHECK(late == 0);
  CHECK(most <= ClockTicks::kTicksMax);
}

TEST_CASE("Clock ticks: a table without a time to live keeps none", "[server][core]") {
  ClockTicks ticks;
  ticks.Note(100, Version(5));
  CHECK(ticks.all().empty());
  CHECK(ticks.EvictBefore() == Version(0));
  REQUIRE_OK(ticks.Restore({{100, Version(5)}}, Version(5)));
  CHECK(ticks.all().empty());
}

TEST_CASE("Clock ticks: those that were saved go on, and those that cannot be are refused",
          "[server][core]") {
  const std::vector<ClockTick> saved = {{10, Version(0)}, {20, Version(7)}, {30, Version(7)}};
  ClockTicks ticks(60);
  REQUIRE_OK(ticks.Restore(saved, Version(7)));
  CHECK(ticks.all() == saved);
  ticks.Note(80, Version(9));
  CHECK(ticks.EvictBefore() == Version(8));
  const auto refused = [&](const std::vector<ClockTick>& wrong, const char* why) {
    CHECK_STATUS(ticks.Restore(wrong, Version(7)), absl::StatusCode::kDataLoss, why);
  };
  refused({{0, Version(0)}},
          "tick at 0 s, of version 0: expected more than 0 s, and version 0 to 7");
  refused({{10, Version(3)}, {20, Version(2)}}, "of version 2: expected more than 10 s");
  refused({{10, Version(8)}}, "of version 8");
  refused({{10, Version(-1)}}, "of version -1");
  refused(std::vector<ClockTick>(131), "131 ticks: expected at most 130");
}

}  // namespace
}  // namespace capstan::server::clock_ticks_test
