#include "common/security/line_limiter.h"

#include <catch2/catch.hpp>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

namespace capstan::line_limiter_test {
namespace {

constexpr LineLimiter::Rate kRate = {.burst = 3, .interval = absl::Seconds(1)};
const absl::Time kStart = absl::FromUnixSeconds(1'000'000);

TEST_CASE("LineLimiter: a burst, then one line for each interval, with what was left out",
          "[security]") {
  LineLimiter limiter;
  for (int i = 0; i < 3; ++i) CHECK(limiter.Take("a", kRate, kStart) == 0);
  for (int i = 0; i < 5; ++i) CHECK(limiter.Take("a", kRate, kStart) == std::nullopt);
  CHECK(limiter.Take("b", kRate, kStart) == 0);  // Another peer has its own lines.
  CHECK(limiter.has_left_out());
  CHECK(limiter.Take("a", kRate, kStart + absl::Seconds(1)) == 5);
  CHECK_FALSE(limiter.has_left_out());
  CHECK(limiter.Take("a", kRate, kStart + absl::Seconds(1)) == std::nullopt);
}

TEST_CASE("LineLimiter: what was left out of a peer that stops is told", "[security]") {
  LineLimiter limiter;
  for (int i = 0; i < 5; ++i) limiter.Take("a", kRate, kStart);
  const absl::Time later = kStart + LineLimiter::kQuiet;
  CHECK(limiter.TakeLeftOut(later - absl::Seconds(1), /*all=*/false).empty());
  SECTION("after a while") {
    const auto left_out = limiter.TakeLeftOut(later, /*all=*/false);
    REQUIRE(left_out.size() == 1);
    CHECK(left_out[0].peer == "a");
    CHECK(left_out[0].lines == 2);
    CHECK(limiter.TakeLeftOut(later, /*all=*/true).empty());
  }
  SECTION("at once, if all are asked for") {
    CHECK(limiter.TakeLeftOut(later - absl::Seconds(1), /*all=*/true).size() == 1);
  }
  CHECK_FALSE(limiter.has_left_out());
}

TEST_CASE("LineLimiter: more peers than it remembers share a limit", "[security]") {
  LineLimiter limiter;
  for (size_t i = 0; i < LineLimiter::kPeersMax; ++i) {
    CHECK(limiter.Take(absl::StrCat("peer-", i), kRate, kStart) == 0);
  }
  for (int i = 0; i < 3; ++i) CHECK(limiter.Take(absl::StrCat("new-", i), kRate, kStart) == 0);
  CHECK(limiter.Take("new-3", kRate, kStart) == std::nullopt);
  // Peers that have been silent are forgotten when there is no room.
  const absl::Time later = kStart + LineLimiter::kQuiet;
  for (int i = 0; i < 3; ++i) CHECK(limiter.Take("new-3", kRate, later) == 0);
  CHECK(limiter.Take("new-3", kRate, later) == std::nullopt);
  CHECK(limiter.Take("new-4", kRate, later) == 0);
}

TEST_CASE("LineLimiter: all peers together are limited, too", "[security]") {
  LineLimiter limiter;
  const LineLimiter::Rate generous = {.burst = 100, .interval = absl::Milliseconds(1)};
  int64_t lines = 0;
  for (int peer = 0; peer < 100; ++peer) {
    for (int i = 0; i < 100; ++i) {
      if (limiter.Take(absl::StrCat(peer), generous, kStart).has_value()) ++lines;
    }
  }
  CHECK(lines == LineLimiter::kAll.burst);
}

}  // namespace
}  // namespace capstan::line_limiter_test
