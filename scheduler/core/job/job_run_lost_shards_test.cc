// Tests a job after the loss of shards: it goes on from logs, from a checkpoint, or begins again.
#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/testing/status_matchers.h"
#include "scheduler/core/testing/servers_fixture.h"

namespace capstan::scheduler::job_run_lost_shards_test {
namespace {

TEST_CASE("Job: with neither a copy, a log nor a checkpoint, lost shards end it",
          "[scheduler][core]") {
  SECTION("no replicas") {
    ServersFixture job(0);
    job.Kill({"server-2"});
    REQUIRE(job.run->parts().state == JobState::kFailed);
    CHECK(job.View().failure ==
          Failure{FailureReason::kServerLost,
                  "server-2, which held shards of the job, is gone: no sync for 3s"});
  }
  SECTION("more servers die at a time than there are replicas") {
    ServersFixture job(1);
    job.Kill({"server-1", "server-2"});
    CHECK(job.run->parts().state == JobState::kFailed);
  }
}

TEST_CASE("Job: a job with a log pauses while shards are lost, until their server is back",
          "[scheduler][core]") {
  ServersFixture job(0, /*log=*/true);
  REQUIRE(job.Of().phase == TaskPhase::kTrain);
  const std::vector<int> shards = job.ShardsOf("server-2");
  const std::vector<SampleLease> leases = job.Of().samples;
  job.Kill({"server-2"});
  CHECK_FALSE(job.run->parts().ended());
  CHECK(job.View().phase == JobPhase::kRecovering);
  CHECK(job.Of().paused);
  CHECK(job.Of().samples == leases);
  job.Pass(absl::Seconds(20));
  CHECK(job.View().detail == absl::StrCat(shards.size(),
                                          " shards are lost: waits for server-2 to come back with "
                                          "the log; 40 s are left"));
  CHECK(job.run->NextDeadline() <= job.now + absl::Seconds(40));
  job.Send(/*idle=*/true);  // A paused task may be idle.
  CHECK_FALSE(job.run->parts().task_watch.HasUnfinishedWork(job.run->parts().tasks.at(Rank(0))));

  SECTION("it comes back with its log") {
    job.Start(2, shards);
    CHECK(job.ShardsOf("server-2") == shards);
    const Term term(job.run->parts().routing->generation.value());
    CHECK(job.run->parts().server_watch.source() ==
          RestoreSource{.restore_term = Term(0), .restore_folder = "", .log_term = term});
    for (const ShardRoute& route : job.run->parts().routing->shards) {
      const bool recovered = job.Primary(route).node == "server-2";
      CHECK(route.term == (recovered ? term : Term(1)));
      if (recovered) CHECK(job.Primary(route) == job.servers.at("server-2"));
    }
    CHECK(job.View().phase == JobPhase::kRecovering);
    CHECK(job.View().detail == "waits for server-2 to restore its shards");
    job.ApplyAll();
    CHECK(job.View().phase == JobPhase::kTraining);
    CHECK(job.Of().phase == TaskPhase::kTrain);
    CHECK_FALSE(job.Of().paused);
    CHECK(job.Of().samples == leases);
  }
  SECTION("it comes back with the log of another job that had this id (issue 20)") {
    job.Start(2, shards, "aa-1");
    CHECK(job.run->parts().server_watch.source().log_term == Term(0));
  }
  SECTION("it comes back with a disk that it had before") {
    job.written_by["server-2"] = Incarnation(1);
    job.Start(2, shards);
    CHECK(job.run->parts().server_watch.source().log_term == Term(0));
    CHECK(job.View().phase == JobPhase::kRecovering);
  }
  SECTION("it comes back without one, and the time runs out") {
    job.Start(2, {shards[0]});
    CHECK(job.View().phase == JobPhase::kRecovering);
    job.Pass(absl::Seconds(40));
    REQUIRE(job.run->parts().state == JobState::kFailed);
    CHECK(job.View().failure.reason == FailureReason::kServerLost);
    CHECK_THAT(job.View().failure.message,
               Catch::StartsWith("server-2, which held shards of the job, is gone: ") &&
                   Catch::Contains(absl::StrCat("table/shard 0/", shards[0], ", 0/")) &&
                   Catch::Contains("within 1 min 0 s it did not come back with its log"));
  }
  SECTION("another dies meanwhile: both must come back") {
    const std::vector<int> others = job.ShardsOf("server-3");
    job.Kill({"server-3"});
    job.Start(2, shards);
    CHECK(job.run->parts().server_watch.source().log_term == Term(0));
    job.Start(3, others);
    CHECK(job.run->parts().server_watch.source().log_term > Term(0));
    job.ApplyAll();
    CHECK(job.View().phase == JobPhase::kTraining);
  }
}

TEST_CASE("Job: servers that die before any work is leased cost it nothing", "[scheduler][core]") {
  const bool log = GENERATE(false, true);
  ServersFixture job(0, log, /*server_count=*/3, ServersFixture::Tables::kNotMade);
  REQUIRE(job.View().phase == JobPhase::kPlacing);
  const Task& task = job.run->parts().tasks.at(Rank(0));
  job.Kill({"server-2"});
  CHECK_FALSE(job.run->parts().ended());
  CHECK_FALSE(task.placed());
  const Term term(job.run->parts().routing->generation.value());
  CHECK(job.run->parts().server_watch.source() ==
        RestoreSource{.restore_term = term, .restore_folder = "", .log_term = Term(0)});
  for (const ShardRoute& route : job.run->parts().routing->shards) CHECK(route.term == term);
  CHECK(job.ShardsOf("server-2").empty());
  job.run->PlaceTask(Rank(0), Incarnation(101), "worker-1", "w:1", job.now, job.events);
  job.ApplyAll();
  CHECK(job.View().phase == JobPhase::kStarting);

  SECTION("not without end") {
    for (int i = 0; i < 30 && !job.run->parts().ended(); ++i) {
      job.Kill({"server-1", "server-3"});
      job.Pass(absl::Seconds(61));
      job.Start(1);
      job.Start(3);
    }
    CHECK(job.run->parts().state == JobState::kFailed);
    CHECK(job.View().failure.reason == FailureReason::kServerLost);
  }
}

// Issue 20: the first servers had lost their power before their logs had any of the tables.
TEST_CASE(
    "Job: one whose servers die again and again before it trains begins ever later, then ends",
    "[scheduler][core]") {
  ServersFixture job(0, /*log=*/false, /*server_count=*/2, ServersFixture::Tables::kNotMade);
  int beginnings = 0;
  absl::Duration waited;
  for (int i = 0; i < 40; ++i) {
    const NodeId primary = job.Primary(job.run->parts().routing->shards[0]).node;
    job.Kill({primary});
    job.Start(primary == "server-1" ? 1 : 2);
    // Like the shell, the test lets time pass to the job's next deadline, and calls the job.
    while (!job.run->parts().ended() && job.run->parts().shards.has_lost()) {
      const absl::Duration step = job.run->NextDeadline() - job.now;
      REQUIRE(step > absl::ZeroDuration());
      waited += step;
      job.Pass(step);
    }
    if (job.run->parts().ended()) break;
    ++beginnings;
    job.run->PlaceTask(Rank(0), Incarnation(101 + static_cast<uint64_t>(i)), "worker-1", "w:1",
                       job.now, job.events);
  }
  CHECK(beginnings == 20);
  CHECK(waited > absl::Minutes(2));
  REQUIRE(job.run->parts().state == JobState::kFailed);
  CHECK_THAT(job.View().failure.message,
             Catch::Contains("the job has begun 20 times") &&
                 Catch::Contains("servers died each time before it trained"));
}

TEST_CASE("Job: servers that die before any work is done cost it nothing but time",
          "[scheduler][core]") {
  const bool log = GENERATE(false, true);
  ServersFixture job(0, log, /*server_count=*/3, ServersFixture::Tables::kMade);
  REQUIRE(job.View().phase == JobPhase::kTraining);
  job.Kill({"server-2"});
  CHECK(job.View().phase == JobPhase::kRecovering);
  job.Start(2);
  if (log) job.Pass(absl::Seconds(61));  // The server has no log of the shards.
  CHECK_FALSE(job.run->parts().ended());
  job.run->PlaceTask(Rank(0), Incarnation(101), "worker-1", "w:1", job.now, job.events);
  job.ApplyAll();
  CHECK(job.View().phase == JobPhase::kStarting);
}

TEST_CASE("Job: a server may restore its log for as long as it gets on with it",
          "[scheduler][core]") {
  ServersFixture job(0, /*log=*/true);
  const std::vector<int> logged = job.ShardsOf("server-2");
  job.Kill({"server-2"});
  job.Pass(absl::Seconds(1));
  job.Start(2, logged);
  REQUIRE(job.View().phase == JobPhase::kRecovering);
  for (int made = 0; made < 3; ++made) {
    TableReport report{"job-1", Generation(0), Generation(0), {}};
    report.making = Making{.made = made, .total = 8, .progress = 5 + static_cast<uint64_t>(made)};
    job.run->OnTableReport("server-2", report, job.now, job.events);
    job.Pass(absl::Seconds(59));
  }
  CHECK(job.View().detail == "waits for server-2 to restore its shards (2 of 8 shards are made)");
  job.ApplyAll();
  CHECK(job.View().phase == JobPhase::kTraining);
}

TEST_CASE("Job: a log that cannot be read back leaves the others", "[scheduler][core]") {
  ServersFixture job(1, /*log=*/true, /*server_count=*/2);
  std::vector<int> all;
  for (const ShardRoute& route : job.run->parts().routing->shards)
    all.push_back(route.key.shard.value());
  job.Kill({"server-1", "server-2"});
  const bool first = GENERATE(false, true);  // The other server is back before the first has read.
  job.Start(1, all);
  if (first) job.Start(2, all);
  REQUIRE(job.ShardsOf("server-1") == all);
  // A server that could not initialize a table reports generation 0.
  TableReport report{"job-1", Generation(0), Generation(0), {}, {}};
  report.failure = {FailureReason::kBadData, "wal-1: record 7: checksum is wrong"};
  job.run->OnTableReport("server-1", report, job.now, job.events);
  CHECK_FALSE(job.run->parts().ended());
  if (!first) job.Start(2, all);
  CHECK(job.ShardsOf("server-1").empty());
  job.servers.erase("server-1");
  job.ApplyAll();
  CHECK(job.View().phase == JobPhase::kTraining);
}

// sim --seed=2163978408: the second report came while the job waited for the first server.
TEST_CASE("Job: two logs that cannot be read back are two lost logs", "[scheduler][core]") {
  ServersFixture job(0, /*log=*/true, /*server_count=*/2);
  const std::vector<int> first = job.ShardsOf("server-1");
  const std::vector<int> second = job.ShardsOf("server-2");
  job.Kill({"server-1", "server-2"});
  job.Start(1, first);
  job.Start(2, second);
  REQUIRE(job.ShardsOf("server-1") == first);
  TableReport report{"job-1", Generation(0), Generation(0), {}, {}};
  report.failure = {FailureReason::kBadData, "wal-1: record 7: checksum is wrong"};
  job.run->OnTableReport("server-1", report, job.now, job.events);
  REQUIRE(job.View().phase == JobPhase::kRecovering);
  job.run->OnTableReport("server-2", report, job.now, job.events);
  CHECK_FALSE(job.run->parts().ended());
  CHECK(job.View().phase == JobPhase::kRecovering);
}

// sim --seed=222560216: the server sent the report before it read its log, and it arrived twice.
TEST_CASE("Job: a late report does not make the log of an earlier incarnation one of an older disk",
          "[scheduler][core]") {
  ServersFixture job(0, /*log=*/true);
  const std::vector<int> shards = job.ShardsOf("server-2");
  const Incarnation writer = job.written_by["server-2"];
  TableReport late{"job-1",
                   job.run->parts().routing->generation,
                   job.run->parts().members.membership().generation,
                   {},
                   {}};
  late.logs_begun = true;
  job.Kill({"server-2"});
  job.Start(2, shards);
  job.logs_begun = false;
  job.ApplyAll();
  const Term read = job.run->parts().server_watch.source().log_term;
  REQUIRE(read > Term(0));
  job.run->OnTableReport("server-2", late, job.now, job.events);
  // The server dies before its log records that this incarnation has the shards.
  job.Kill({"server-2"});
  job.written_by["server-2"] = writer;
  job.Start(2, shards);
  CHECK(job.run->parts().server_watch.source().log_term > read);
}

// sim --seed=3210225116: the log of a successor of the first, on an older disk, was used.
TEST_CASE("Job: the logs of before count until it is known that who took over has begun its own",
          "[scheduler][core]") {
  ServersFixture job(1, /*log=*/true, /*server_count=*/2);
  std::vector<int> all;
  for (const ShardRoute& route : job.run->parts().routing->shards)
    all.push_back(route.key.shard.value());
  const auto awaits_log = [&job] {
    return std::ranges::all_of(job.run->parts().routing->shards, &ShardRoute::awaits_log);
  };
  job.Kill({"server-1", "server-2"});
  const Incarnation writer = job.written_by["server-1"];
  job.Start(1, all);
  job.Start(2, all);
  REQUIRE(job.ShardsOf("server-1") == all);
  REQUIRE(awaits_log());  // Until then it acknowledges no push.
  TableReport report{"job-1", job.run->parts().routing->generation, Generation(0), {}, {}};
  SECTION("it dies before that") {
    job.Kill({"server-1"});
    CHECK(job.ShardsOf("server-2") == all);
    CHECK(awaits_log());
  }
  SECTION("its disk is full before that") {
    report.failure = {FailureReason::kServerLost, "no space left"};
    job.run->OnTableReport("server-1", report, job.now, job.events);
    CHECK(job.ShardsOf("server-2") == all);
  }
  SECTION("it is known, and it dies") {
    report.logs_begun = true;
    job.run->OnTableReport("server-1", report, job.now, job.events);
    CHECK_FALSE(awaits_log());
    job.Kill({"server-1"});
    CHECK(job.ShardsOf("server-2").empty());
    SECTION("and comes back with its log") {
      job.Start(1, all);
      CHECK(job.ShardsOf("server-1") == all);
      job.ApplyAll();
      CHECK(job.View().phase == JobPhase::kTraining);
    }
    SECTION("and comes back with the disk that it had before") {
      job.written_by["server-1"] = writer;
      job.Start(1, all);
      CHECK(job.View().phase == JobPhase::kRecovering);
    }
    SECTION("and comes back with another disk") {
      job.Start(1);
      CHECK(job.View().phase == JobPhase::kRecovering);
    }
  }
}

TEST_CASE("Job: what a server registered with is durable at once", "[scheduler][core]") {
  ServersFixture job(0, /*log=*/true);
  const std::vector<int> shards = job.ShardsOf("server-2");
  const std::vector<int> others = job.ShardsOf("server-3");
  job.Kill({"server-2", "server-3"});
  const uint64_t before = job.run->parts().durable_version();
  job.Start(2, shards);
  CHECK(job.run->parts().durable_version() > before);
}

TEST_CASE("Job: a log that an earlier primary left is not taken for the last one's",
          "[scheduler][core]") {
  ServersFixture job(1, /*log=*/true);
  const std::vector<int> shards = job.ShardsOf("server-1");
  job.Kill({"server-1"});  // Its replicas take over, without other copies until some are filled.
  job.Kill({"server-2", "server-3"});
  REQUIRE(job.View().phase == JobPhase::kRecovering);
  std::vector<int> all;
  for (const ShardRoute& route : job.run->parts().routing->shards)
    all.push_back(route.key.shard.value());
  job.Start(1, all);
  CHECK(job.run->parts().server_watch.source().log_term == Term(0));
  job.Start(2, all);
  CHECK(job.run->parts().server_watch.source().log_term == Term(0));
  job.Start(3, all);
  CHECK(job.run->parts().server_watch.source().log_term > Term(0));
  CHECK(job.ShardsOf("server-1").empty());
}

}  // namespace
}  // namespace capstan::scheduler::job_run_lost_shards_test
