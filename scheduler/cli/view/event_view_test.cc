#include "scheduler/cli/view/event_view.h"

#include <catch2/catch.hpp>

#include "absl/time/time.h"

namespace capstan::cli::event_view_test {
namespace {

int64_t LocalMs(int hour, int minute, int second) {
  return absl::ToUnixMillis(
      absl::FromCivil(absl::CivilSecond(2026, 3, 4, hour, minute, second), absl::LocalTimeZone()));
}

v1::JobStatus WithEvents() {
  v1::JobStatus job;
  v1::JobEvent& full = *job.add_events();
  full.set_kind(v1::JobEvent::DISK_FULL);
  full.set_node_id("server-1");
  full.set_text("wal-3: No space left on device");
  full.set_unix_ms(LocalMs(14, 3, 7));
  full.set_count(2);
  v1::JobEvent& degraded = *job.add_events();
  degraded.set_kind(v1::JobEvent::DEGRADED);
  degraded.set_text("5 of 16 shards without a replica");
  degraded.set_unix_ms(LocalMs(14, 3, 8));
  degraded.set_count(1);
  return job;
}

TEST_CASE("EventTable: a row an event, with time, node and how often", "[cli]") {
  v1::JobStatus job = WithEvents();
  const std::string rows =
      "TIME                 NODE      EVENT      TIMES  WHAT HAPPENED\n"
      "2026-03-04 14:03:07  server-1  disk full      2  wal-3: No space left on device\n"
      "2026-03-04 14:03:08  -         degraded       1  5 of 16 shards without a replica\n";
  CHECK(EventTable(job) == rows);
  job.set_events_forgotten(1200);
  CHECK(EventTable(job) == rows + "1,200 earlier events are not kept\n");
  CHECK(EventTable({}) == "");
}

TEST_CASE("EventLine: time, node, kind and text, and nothing that steers a terminal", "[cli]") {
  v1::JobStatus job = WithEvents();
  CHECK(EventLine(job.events(0)) ==
        "14:03:07  server-1  disk full: wal-3: No space left on device");
  job.mutable_events(1)->set_text("a\x1b[2J");
  CHECK(EventLine(job.events(1)) == "14:03:08  degraded: a\\u001b[2J");
}

TEST_CASE("EventName: every kind has a name, also one of a newer scheduler", "[cli]") {
  CHECK(EventName(v1::JobEvent::CHECKPOINT_FAILED) == "checkpoint failed");
  CHECK(EventName(static_cast<v1::JobEvent::Kind>(99)) == "event 99");
}

}  // namespace
}  // namespace capstan::cli::event_view_test
