#include "worker/task/reporting/report_pacer.h"

#include <catch2/catch.hpp>

namespace capstan::worker::report_pacer_test {
namespace {

v1::SyncTaskRequest Report(bool idle, uint64_t routing_seen) {
  v1::SyncTaskRequest report;
  report.set_idle(idle);
  report.set_routing_seen(routing_seen);
  return report;
}

TEST_CASE("Report pause: an idle task whose report was held asks again at once", "[worker][task]") {
  CHECK(ReportPause(Report(true, 3), false, absl::Milliseconds(200), {}) == absl::ZeroDuration());
}

TEST_CASE("Report pause: an idle task whose report was not held does not ask without end",
          "[worker][task]") {
  for (const uint64_t routing : {0, 3}) {
    CHECK(ReportPause(Report(true, routing), false, absl::Milliseconds(1), {}) ==
          absl::Milliseconds(50));
  }
}

// Between two epochs a task must acknowledge that its leases are gone before it gets the next ones.
TEST_CASE("Report pause: an idle task that was told something says at once that it knows",
          "[worker][task]") {
  v1::SyncTaskResponse assignment, routing;
  assignment.mutable_assignment();
  routing.mutable_routing()->set_generation(4);
  for (const v1::SyncTaskResponse& told : {assignment, routing}) {
    ReportPacer pacer;
    pacer.OnAnswer(Report(true, 3), told, absl::Milliseconds(1));
    CHECK(pacer.pause() == absl::ZeroDuration());
    pacer.OnAnswer(Report(false, 3), told, absl::Milliseconds(1));
    CHECK(pacer.pause() == absl::Milliseconds(200));
  }
}

// Its server is dead: it says that it has no table, and gets the same one until shards have moved.
TEST_CASE("Report pacer: an idle task that lacks a table does not ask without end",
          "[worker][task]") {
  ReportPacer pacer;
  v1::SyncTaskResponse answer;
  answer.mutable_routing()->set_generation(4);
  pacer.OnAnswer(Report(true, 0), answer, absl::Milliseconds(1));
  CHECK(pacer.pause() == absl::ZeroDuration());
  for (int i = 0; i < 2; ++i) {
    pacer.OnAnswer(Report(true, 0), answer, absl::Milliseconds(1));
    CHECK(pacer.pause() == absl::Milliseconds(50));
  }
  answer.mutable_routing()->set_generation(5);
  pacer.OnAnswer(Report(true, 0), answer, absl::Milliseconds(1));
  CHECK(pacer.pause() == absl::ZeroDuration());
}

TEST_CASE("Report pause: a task at work reports at its interval, sooner if it lacks a table",
          "[worker][task]") {
  const ReportPace pace = {.interval = absl::Seconds(1), .interval_in_need = absl::Seconds(2)};
  CHECK(ReportPause(Report(false, 3), false, absl::ZeroDuration(), {}) == absl::Milliseconds(200));
  CHECK(ReportPause(Report(false, 0), false, absl::Seconds(1), {}) == absl::Milliseconds(50));
  CHECK(ReportPause(Report(false, 0), false, absl::Seconds(1), pace) == absl::Seconds(1));
}

TEST_CASE("Report pacer: an unreachable scheduler is asked ever more seldom", "[worker]") {
  ReportPacer pacer;
  CHECK(pacer.pause() == absl::Milliseconds(200));
  CHECK(pacer.timeout() == agent_timing::kFirstSyncTimeout);
  pacer.OnFailure();
  CHECK(pacer.pause() == absl::Milliseconds(400));
  for (int i = 0; i < 5; ++i) pacer.OnFailure();
  CHECK(pacer.pause() == absl::Seconds(1));
  v1::SyncTaskResponse answer;
  answer.set_sync_interval_ms(1000);
  answer.set_lease_ms(4000);
  pacer.OnAnswer(Report(false, 3), answer, absl::Milliseconds(1));
  CHECK(pacer.pause() == absl::Milliseconds(200));
  CHECK(pacer.timeout() == absl::Seconds(2));
  pacer.OnAnswer(Report(true, 3), answer, absl::Seconds(1));
  CHECK(pacer.pause() == absl::ZeroDuration());
  pacer.OnFailure();  // Also after a report that was held.
  CHECK(pacer.pause() == absl::Milliseconds(200));
}

}  // namespace
}  // namespace capstan::worker::report_pacer_test
