#include "server/rpc/deadline_timer.h"

#include <catch2/catch.hpp>

#include "absl/synchronization/notification.h"

namespace capstan::server::deadline_timer_test {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(20);

TEST_CASE("Deadline timer: ticks when the deadline has come, not before", "[server]") {
  SteadyClock clock;
  Instant ticked;
  absl::Notification done;
  DeadlineTimer timer(&clock, [&](Instant now) {
    ticked = now;
    done.Notify();
    return Instant::InfiniteFuture();
  });
  timer.Start();
  const Instant deadline = clock.Now() + absl::Milliseconds(20);
  timer.Schedule(clock.Now() + absl::Hours(1));
  timer.Schedule(deadline);
  REQUIRE(done.WaitForNotificationWithTimeout(kPatience));
  timer.Stop();
  CHECK(ticked >= deadline);
}

TEST_CASE("Deadline timer: a tick says when the next one is due", "[server]") {
  SteadyClock clock;
  int ticks = 0;
  absl::Notification third;
  DeadlineTimer timer(&clock, [&](Instant now) {
    if (++ticks == 3) third.Notify();
    return ticks < 3 ? now + absl::Milliseconds(1) : Instant::InfiniteFuture();
  });
  timer.Start();
  timer.Schedule(clock.Now());
  REQUIRE(third.WaitForNotificationWithTimeout(kPatience));
  timer.Stop();
  CHECK(ticks == 3);
}

TEST_CASE("Deadline timer: stops though nothing is due", "[server]") {
  SteadyClock clock;
  int ticks = 0;
  DeadlineTimer timer(&clock, [&](Instant) {
    ++ticks;
    return Instant::InfiniteFuture();
  });
  timer.Start();
  timer.Stop();
  timer.Stop();
  CHECK(ticks == 0);
}

}  // namespace
}  // namespace capstan::server::deadline_timer_test
