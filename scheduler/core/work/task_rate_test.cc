#include "scheduler/core/work/task_rate.h"

#include <catch2/catch.hpp>

namespace capstan::scheduler::task_rate_test {
namespace {

Instant At(double seconds) { return Instant::FromOrigin(absl::Seconds(seconds)); }

TEST_CASE("Task rate: it is known after a second of training, and the last one stands",
          "[scheduler][core]") {
  TaskRate rate;
  rate.Begin();
  rate.Add(100, At(5));
  rate.Add(150, At(5.9));
  CHECK(rate.per_second() == 0);
  rate.Add(300, At(7));
  CHECK(rate.per_second() == 100);
  rate.Begin();  // The time in between was no training.
  rate.Add(300, At(60));
  rate.Add(350, At(60.5));
  CHECK(rate.per_second() == 100);
  rate.Add(700, At(62));
  CHECK(rate.per_second() == 200);
}

}  // namespace
}  // namespace capstan::scheduler::task_rate_test
