#include "common/net/data/call_deadlines.h"

#include <catch2/catch.hpp>
#include <vector>

namespace capstan::call_deadlines_test {
namespace {

using Calls = std::vector<CallDeadlines::CallId>;

Instant At(double seconds) { return Instant::FromOrigin(absl::Seconds(seconds)); }

TEST_CASE("Call deadlines: a call is overdue once its time is over", "[net][data]") {
  CallDeadlines deadlines;
  CHECK(deadlines.NextAfter(At(0)) == Instant::InfiniteFuture());
  deadlines.Add(7, At(0), absl::Seconds(30));
  deadlines.Add(5, At(0), absl::Seconds(10));
  deadlines.Add(6, At(1), absl::Seconds(1));
  CHECK(deadlines.NextAfter(At(0)) == At(2));
  CHECK(deadlines.Overdue(At(1.9)).empty());
  CHECK(deadlines.Overdue(At(10)) == Calls{6, 5});
  CHECK(deadlines.NextAfter(At(10)) == At(30));
  deadlines.Remove(6);
  deadlines.Remove(6);
  CHECK(deadlines.Overdue(At(10)) == Calls{5});
}

TEST_CASE("Call deadlines: bytes that move begin the time of all calls anew", "[net][data]") {
  CallDeadlines deadlines;
  for (const auto call : Calls{1, 2, 3}) deadlines.Add(call, At(0), absl::Seconds(30));
  // 100 s of answers, one after the other.
  int64_t bytes = 0;
  for (int second = 1; second <= 100; ++second) {
    deadlines.Moved(At(second), bytes += 1000);
    CHECK(deadlines.Overdue(At(second)).empty());
    CHECK(deadlines.NextAfter(At(second)) > At(second));
  }
  deadlines.Remove(1);
  deadlines.Moved(At(120), bytes);  // Nothing more has come.
  CHECK(deadlines.Overdue(At(129.9)).empty());
  CHECK(deadlines.NextAfter(At(129.9)) == At(130));
  CHECK(deadlines.Overdue(At(130)) == Calls{2, 3});
}

TEST_CASE("Call deadlines: what moved before a call does not shorten its time", "[net][data]") {
  CallDeadlines deadlines;
  deadlines.Moved(At(5), 100);
  deadlines.Add(1, At(20), absl::Seconds(10));
  CHECK(deadlines.Overdue(At(29.9)).empty());
  CHECK(deadlines.Overdue(At(30)) == Calls{1});
}

}  // namespace
}  // namespace capstan::call_deadlines_test
