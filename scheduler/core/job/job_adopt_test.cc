// Tests the adoption of another cluster's job, from a record that may be older than its logs.
#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/testing/status_matchers.h"
#include "scheduler/core/testing/job_fixture.h"

namespace capstan::scheduler::job_adopt_test {
namespace {

using testing::JobFixture;

// A job with a log, in its first epoch.
struct Fixture : JobFixture {
  explicit Fixture(ConsistencyMode mode)
      : JobFixture(mode, /*workers=*/2, /*test_count=*/0, Objective::kClasses, std::nullopt,
                   /*log=*/true) {
    Start();
    REQUIRE(phase() == JobPhase::kTraining);
  }
  // Both servers join as new incarnations, with logs of later terms, and tasks start.
  void TakeUp() {
    const Routing before = *run->parts().routing;
    events.clear();
    run->Adopt("aa", Incarnation(50), CheckpointId(7), now, events);
    for (const ServerRef& server : before.servers) {
      std::vector<StoredShard> stored;
      for (const ShardRoute& route : before.shards) {
        if (before.servers[static_cast<size_t>(route.server)] != server) continue;
        const Term later(route.term.value() + 3);
        stored.push_back({"job-1", route.key, later, Position(9), "", server.incarnation});
      }
      const Incarnation incarnation(60 + server.incarnation.value());
      run->OnServerJoined({server.node, server.address, incarnation}, stored, /*draining=*/false,
                          now, events);
    }
    for (int rank = 0; rank < 2; ++rank) {
      incarnations[static_cast<size_t>(rank)] = 9;
      Place(rank);
    }
  }
  // Both tasks learn from the servers an iteration of the next epoch.
  void ReportNextEpoch() {
    for (int rank = 0; rank < 2; ++rank) {
      TaskReport report = Base(rank);
      report.idle = true;
      for (const SlotLease& lease : Of(rank).slots) {
        report.slots.push_back({lease.slot, Iteration(lease.end.value() + 1)});
      }
      REQUIRE_OK(Send(report));
    }
  }
  template <typename Kind>
  const Kind* Happened() const {
    for (const Event& event : events) {
      if (const auto* found = std::get_if<Kind>(&event)) return found;
    }
    return nullptr;
  }
};

TEST_CASE("Adopted job: BSP tasks may find iterations beyond the epoch of its record (issue 20)",
          "[scheduler][core]") {
  Fixture job(ConsistencyMode::kBsp);
  TaskReport ahead = job.Base(0);
  for (const SlotLease& lease : job.Of(0).slots) {
    ahead.slots.push_back({lease.slot, Iteration(lease.end.value() + 3)});
  }
  REQUIRE_FALSE(ahead.slots.empty());
  CHECK_STATUS(job.Send(ahead), absl::StatusCode::kInvalidArgument, "above the end of the lease");
  job.TakeUp();
  job.Start();
  REQUIRE(job.phase() == JobPhase::kTraining);
  job.ReportNextEpoch();
  // The iterations beyond belong to the next epoch, in which the tasks report them again.
  CHECK(job.View().results.size() == 1);
  CHECK(job.Of(0).epoch == Epoch(1));
  CHECK(job.Of(0).slots.at(0).begin == Iteration(2));
  CHECK(job.Happened<TrainedTwice>() == nullptr);
}

// Seed 896907069: no live process knew the next epoch, but the servers' logs had a part of it. All
// reports were refused, and the tasks ended one after the other.
TEST_CASE("Restored job: its store may be of an earlier epoch than its tables (issue 20)",
          "[scheduler][core]") {
  Fixture job(ConsistencyMode::kBsp);
  job.run->Restored(job.now, absl::ZeroDuration());
  job.ReportNextEpoch();
  CHECK(job.View().results.size() == 1);
  CHECK(job.Of(0).epoch == Epoch(1));
}

// Tasks that an earlier scheduler placed after the store was copied are in no record, but may live.
TEST_CASE(
    "Restored job: who goes back fences off incarnations that the store does not know (issue 20)",
    "[scheduler][core]") {
  JobFixture job(GENERATE(ConsistencyMode::kBsp, ConsistencyMode::kSsp, ConsistencyMode::kAsp));
  job.Start();
  job.run->Restored(job.now, absl::ZeroDuration(), Generation(1000));
  job.Died("server-1");
  REQUIRE(job.phase() == JobPhase::kRecovering);
  CHECK(job.run->parts().members.membership().incarnation_floor == Incarnation(1000));
}

TEST_CASE("Adopted job: that the other cluster is gone is no event, and what follows is above it",
          "[scheduler][core]") {
  Fixture job(GENERATE(ConsistencyMode::kBsp, ConsistencyMode::kSsp, ConsistencyMode::kAsp));
  const JobMembership before = job.run->parts().members.membership();
  const uint64_t revision = job.run->parts().revision;
  job.TakeUp();
  CHECK(job.Happened<ServerLost>() == nullptr);
  CHECK(job.Happened<TaskDied>() == nullptr);
  CHECK(job.run->parts().state == JobState::kRunning);
  CHECK(job.run->parts().routing->generation > Generation(kGenerationsPerAdoption));
  CHECK(job.run->parts().server_watch.source().log_term > Term(kGenerationsPerAdoption));
  const JobMembership& members = job.run->parts().members.membership();
  CHECK(members.generation.value() > before.generation.value() + kGenerationsPerAdoption);
  CHECK(members.incarnation_floor == Incarnation(50));
  CHECK(job.run->parts().checkpoints.all().last_begun() == CheckpointId(7));
  CHECK(job.run->parts().revision > revision + (uint64_t{1} << 31));
}

TEST_CASE("Adopted job: how many batches may be trained once more is said once",
          "[scheduler][core]") {
  Fixture job(ConsistencyMode::kAsp);
  const int64_t known = job.View().iteration;
  const int64_t version = GENERATE(0, 5);
  job.TakeUp();
  for (const std::string server : {"server-1", "server-2"}) {
    TableReport report{"job-1",
                       job.run->parts().routing->generation,
                       job.run->parts().members.membership().generation,
                       {}};
    // The servers differ by a push that reached only one of them.
    report.version_max =
        Version(server == "server-1" ? std::max<int64_t>(version - 1, 0) : version);
    job.run->OnTableReport(server, report, job.now, job.events);
  }
  const TrainedTwice* twice = job.Happened<TrainedTwice>();
  if (version == 0) {
    CHECK(twice == nullptr);
  } else {
    REQUIRE(twice != nullptr);
    CHECK(twice->batches_max == version - known);
  }
  job.events.clear();
  job.Start();
  CHECK(job.phase() == JobPhase::kTraining);
  CHECK(job.Happened<TrainedTwice>() == nullptr);
}

TEST_CASE("Adopted job: shards without a log keep it waiting, and are told", "[scheduler][core]") {
  Fixture job(ConsistencyMode::kBsp);
  const Routing before = *job.run->parts().routing;
  job.run->Adopt("aa", Incarnation(50), CheckpointId(0), job.now, job.events);
  CHECK(job.run->parts().shards.has_lost());
  CHECK(job.run->parts().shards.WithoutLog().size() == before.shards.size());
  CHECK(job.phase() == JobPhase::kRecovering);
  // A log of another job does not count.
  const StoredShard other{"job-1", before.shards[0].key, Term(1), Position(9),
                          "bb",    Incarnation(1)};
  job.run->OnServerJoined({"server-1", "h:1", Incarnation(61)}, {{other}}, false, job.now,
                          job.events);
  CHECK(job.run->parts().shards.WithoutLog().size() == before.shards.size());
}

}  // namespace
}  // namespace capstan::scheduler::job_adopt_test
