// What becomes of a job when its servers die, come back, join and are drained.
#include <algorithm>
#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/testing/status_matchers.h"
#include "scheduler/core/job_run.h"

namespace capstan::scheduler {
namespace {

// An SSP job of one task on three servers, driven by hand.
struct Story {
  enum class Tables { kNotMade, kMade, kTrained };
  explicit Story(int replicas, bool log = false, int server_count = 3,
                 Tables tables = Tables::kTrained) {
    plan.id = "job-1";
    plan.unique_id = "cc-1";
    plan.mode = Mode::kSsp;
    plan.workers = 1;
    plan.replicas = replicas;
    plan.log = log;
    plan.server_wait = absl::Seconds(60);
    plan.epochs = 1;
    plan.batch_size = 10;
    plan.train_count = 8000;
    plan.tables = {300'000};
    plan.export_path = "/out";
    std::vector<ServerRef> refs;
    for (int i = 1; i <= server_count; ++i) refs.push_back(Life(i));
    auto routing = std::make_shared<const Routing>(
        PlaceShards(plan.id, Generation(1), plan.tables, refs, replicas));
    run = std::make_unique<JobRun>(plan, routing, JobRun::Options{}, now);
    run->PlaceTask(Rank(0), Incarnation(100), "worker-1", "w:1", now, events);
    if (tables == Tables::kNotMade) return;
    Send();
    ApplyAll();
    if (tables == Tables::kMade) return;
    samples = 10;
    Send();
  }

  ServerRef Life(int number) {
    const NodeId name = absl::StrCat("server-", number);
    written_by[name] = Incarnation(incarnation + 1);
    servers[name] = {name, name + ":1", Incarnation(++incarnation)};
    return servers[name];
  }
  void Send(bool idle = false) {
    TaskReport report;
    report.task = {"job-1", Rank(0), Incarnation(100)};
    report.assignment_seen = Of().generation;
    report.idle = idle;
    report.totals.samples = samples;
    REQUIRE_OK(run->OnTaskReport(report, now, events));
  }
  const Assignment& Of() const { return run->task(Rank(0)).assignment; }
  // Servers apply what there is and, once a table is applied, have filled its replicas.
  void ApplyAll() {
    for (int i = 0; i < 6; ++i) {
      for (const auto& [name, ref] : servers) Apply(name);
    }
  }
  void Apply(const NodeId& name) {
    const Routing& table = *run->routing();
    TableReport report{"job-1", table.generation, run->membership().generation, {}, {}};
    const auto at = [&](int index) { return table.servers[static_cast<size_t>(index)]; };
    for (const ShardRoute& route : table.shards) {
      for (const ReplicaRef& replica : route.replicas) {
        const ServerRef ref = at(replica.server);
        if (at(route.server) != servers.at(name)) continue;
        report.replicas.push_back(
            {route.key, route.term, ref.node, ref.incarnation, ReplicaReport::State::kFilled});
      }
    }
    run->OnTableReport(name, report, now, events);
  }
  void Kill(const std::vector<NodeId>& names, absl::Duration fence = absl::ZeroDuration()) {
    std::vector<JobRun::DeadNode> dead;
    for (const NodeId& name : names) {
      servers.erase(name);
      dead.push_back({name, "no sync for 3s", now + fence});
    }
    run->OnNodesDied(dead, now, events);
  }
  // A new process of that name, with a log of these shards of table 0.
  void Start(int number, const std::vector<int>& logged = {},
             const std::string& unique_id = "cc-1") {
    std::vector<StoredShard> stored;
    const Incarnation writer = written_by[absl::StrCat("server-", number)];
    for (const int shard : logged) {
      stored.push_back(
          {"job-1", {TableId(0), ShardId(shard)}, Term(1), Position(5), unique_id, writer});
    }
    run->OnServerJoined(Life(number), stored, /*draining=*/false, now, events);
  }
  void Pass(absl::Duration step) {
    now = now + step;
    run->Tick(now, events);
  }
  std::vector<int> ShardsOf(const NodeId& name) const {
    std::vector<int> shards;
    for (const ShardRoute& route : run->routing()->shards) {
      if (Primary(route).node == name) shards.push_back(route.key.shard.value());
    }
    return shards;
  }
  const ServerRef& Primary(const ShardRoute& route) const {
    return run->routing()->servers[static_cast<size_t>(route.server)];
  }
  JobView View() const { return run->View(now); }

  JobPlan plan;
  int64_t samples = 0;  // That the task has trained.
  uint64_t incarnation = 0;
  absl::btree_map<NodeId, ServerRef> servers;
  absl::btree_map<NodeId, Incarnation> written_by;  // Their logs.
  Instant now = Instant::FromOrigin(absl::Seconds(100));
  Events events;
  std::unique_ptr<JobRun> run;
};

TEST_CASE("Job: it begins with its replicas unfilled, and counts them once they are",
          "[scheduler][core]") {
  Story job(1);
  CHECK(job.View().phase == JobPhase::kTraining);
  CHECK(job.run->shards().complete());
  CHECK(job.run->routing()->generation > Generation(1));
  for (const ShardRoute& route : job.run->routing()->shards) {
    CHECK(route.term == Term(1));
    REQUIRE(route.replicas.size() == 1);
    CHECK(route.replicas[0].in_sync);
  }
}

TEST_CASE("Job: a dead server's shards are promoted, its replicas placed anew, and it trains on",
          "[scheduler][core]") {
  Story job(1);
  const Generation before = job.run->routing()->generation;
  const std::vector<SampleLease> leases = job.Of().samples;
  job.run->TakeChangedAssignments();
  job.Kill({"server-2"});
  CHECK_FALSE(job.run->ended());
  CHECK(job.run->routing()->generation == before.Next());
  CHECK_FALSE(job.run->UsesServer("server-2"));
  CHECK(job.run->TakeChangedAssignments() == std::vector<Rank>{Rank(0)});  // It hears of the table.
  CHECK(job.Of().samples == leases);
  CHECK(job.View().phase == JobPhase::kTraining);
  CHECK_FALSE(job.run->shards().complete());
  job.ApplyAll();
  CHECK(job.run->shards().complete());
  // With two servers each holds a copy of all.
  CHECK(job.run->shards().CopiesOn("server-1") ==
        static_cast<int>(job.run->routing()->shards.size()));
}

TEST_CASE("Job: nobody is promoted before the dead primary's read lease is over",
          "[scheduler][core]") {
  Story job(1);
  const Generation before = job.run->routing()->generation;
  job.Kill({"server-2"}, absl::Milliseconds(500));
  CHECK_FALSE(job.ShardsOf("server-2").empty());
  CHECK(job.run->NextDeadline() == job.now + absl::Milliseconds(500));
  job.Pass(absl::Milliseconds(499));
  CHECK_FALSE(job.ShardsOf("server-2").empty());
  job.Pass(absl::Milliseconds(1));
  CHECK(job.ShardsOf("server-2").empty());
  CHECK(job.run->routing()->generation > before);
}

TEST_CASE("Job: with neither a copy, a log nor a checkpoint, lost shards end it",
          "[scheduler][core]") {
  SECTION("no replicas") {
    Story job(0);
    job.Kill({"server-2"});
    REQUIRE(job.run->state() == JobState::kFailed);
    CHECK(job.View().failure ==
          Failure{FailureReason::kServerLost,
                  "server-2, which held shards of the job, is gone: no sync for 3s"});
  }
  SECTION("more servers die at a time than there are replicas") {
    Story job(1);
    job.Kill({"server-1", "server-2"});
    CHECK(job.run->state() == JobState::kFailed);
  }
}

TEST_CASE("Job: a job with a log pauses while shards are lost, until their server is back",
          "[scheduler][core]") {
  Story job(0, /*log=*/true);
  REQUIRE(job.Of().phase == TaskPhase::kTrain);
  const std::vector<int> shards = job.ShardsOf("server-2");
  const std::vector<SampleLease> leases = job.Of().samples;
  job.Kill({"server-2"});
  CHECK_FALSE(job.run->ended());
  CHECK(job.View().phase == JobPhase::kRecovering);
  CHECK(job.Of().paused);
  CHECK(job.Of().samples == leases);
  job.Pass(absl::Seconds(20));
  CHECK(job.View().detail == absl::StrCat(shards.size(),
                                          " shards are lost: waits for server-2 to come back with "
                                          "the log; 40 s are left"));
  CHECK(job.run->NextDeadline() <= job.now + absl::Seconds(40));
  job.Send(/*idle=*/true);  // Paused, and idle: that is no contradiction.
  CHECK_FALSE(job.run->HasUnfinishedWork(job.run->task(Rank(0))));

  SECTION("it comes back with its log") {
    job.Start(2, shards);
    CHECK(job.ShardsOf("server-2") == shards);
    const Term term(job.run->routing()->generation.value());
    CHECK(job.run->restore_source() ==
          RestoreSource{.restore_term = Term(0), .restore_folder = "", .log_term = term});
    for (const ShardRoute& route : job.run->routing()->shards) {
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
    CHECK(job.run->restore_source().log_term == Term(0));
  }
  SECTION("it comes back with a disk that it had before") {
    job.written_by["server-2"] = Incarnation(1);
    job.Start(2, shards);
    CHECK(job.run->restore_source().log_term == Term(0));
    CHECK(job.View().phase == JobPhase::kRecovering);
  }
  SECTION("it comes back without one, and the time runs out") {
    job.Start(2, {shards[0]});
    CHECK(job.View().phase == JobPhase::kRecovering);
    job.Pass(absl::Seconds(40));
    REQUIRE(job.run->state() == JobState::kFailed);
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
    CHECK(job.run->restore_source().log_term == Term(0));
    job.Start(3, others);
    CHECK(job.run->restore_source().log_term > Term(0));
    job.ApplyAll();
    CHECK(job.View().phase == JobPhase::kTraining);
  }
}

TEST_CASE("Job: servers that die before any work is leased cost it nothing", "[scheduler][core]") {
  const bool log = GENERATE(false, true);
  Story job(0, log, /*server_count=*/3, Story::Tables::kNotMade);
  REQUIRE(job.View().phase == JobPhase::kPlacing);
  const Task& task = job.run->task(Rank(0));
  job.Kill({"server-2"});
  CHECK_FALSE(job.run->ended());
  CHECK_FALSE(task.placed());
  const Term term(job.run->routing()->generation.value());
  CHECK(job.run->restore_source() ==
        RestoreSource{.restore_term = term, .restore_folder = "", .log_term = Term(0)});
  for (const ShardRoute& route : job.run->routing()->shards) CHECK(route.term == term);
  CHECK(job.ShardsOf("server-2").empty());
  job.run->PlaceTask(Rank(0), Incarnation(101), "worker-1", "w:1", job.now, job.events);
  job.ApplyAll();
  CHECK(job.View().phase == JobPhase::kStarting);

  SECTION("not without end") {
    for (int i = 0; i < 30 && !job.run->ended(); ++i) {
      job.Kill({"server-1", "server-3"});
      job.Pass(absl::Seconds(61));
      job.Start(1);
      job.Start(3);
    }
    CHECK(job.run->state() == JobState::kFailed);
    CHECK(job.View().failure.reason == FailureReason::kServerLost);
  }
}

// Issue 20: the first servers had lost their power before their logs had any of the tables.
TEST_CASE(
    "Job: one whose servers die again and again before it trains begins ever later, then ends",
    "[scheduler][core]") {
  Story job(0, /*log=*/false, /*server_count=*/2, Story::Tables::kNotMade);
  int beginnings = 0;
  absl::Duration waited;
  for (int i = 0; i < 40; ++i) {
    const NodeId primary = job.Primary(job.run->routing()->shards[0]).node;
    job.Kill({primary});
    job.Start(primary == "server-1" ? 1 : 2);
    // As the shell: time passes up to the next deadline of the job, and it is told.
    while (!job.run->ended() && job.run->shards().has_lost()) {
      const absl::Duration step = job.run->NextDeadline() - job.now;
      REQUIRE(step > absl::ZeroDuration());
      waited += step;
      job.Pass(step);
    }
    if (job.run->ended()) break;
    ++beginnings;
    job.run->PlaceTask(Rank(0), Incarnation(101 + static_cast<uint64_t>(i)), "worker-1", "w:1",
                       job.now, job.events);
  }
  CHECK(beginnings == 20);
  CHECK(waited > absl::Minutes(2));
  REQUIRE(job.run->state() == JobState::kFailed);
  CHECK_THAT(job.View().failure.message,
             Catch::Contains("the job has begun 20 times") &&
                 Catch::Contains("servers died each time before it trained"));
}

TEST_CASE("Job: servers that die before any work is done cost it nothing but time",
          "[scheduler][core]") {
  const bool log = GENERATE(false, true);
  Story job(0, log, /*server_count=*/3, Story::Tables::kMade);
  REQUIRE(job.View().phase == JobPhase::kTraining);
  job.Kill({"server-2"});
  CHECK(job.View().phase == JobPhase::kRecovering);
  job.Start(2);
  if (log) job.Pass(absl::Seconds(61));  // It has no log of the shards.
  CHECK_FALSE(job.run->ended());
  job.run->PlaceTask(Rank(0), Incarnation(101), "worker-1", "w:1", job.now, job.events);
  job.ApplyAll();
  CHECK(job.View().phase == JobPhase::kStarting);
}

TEST_CASE("Job: a server may restore its log for as long as it gets on with it",
          "[scheduler][core]") {
  Story job(0, /*log=*/true);
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

TEST_CASE("Job: a server whose disk fails is as good as dead to the job", "[scheduler][core]") {
  const Failure failed{FailureReason::kServerLost, "wal-3: no space"};
  const auto fail = [&](Story& job, const NodeId& server) {
    TableReport report{"job-1", job.run->routing()->generation, Generation(0), failed, {}};
    job.run->OnTableReport(server, report, job.now, job.events);
  };
  SECTION("its replicas take over, and it gets nothing more in this life") {
    Story job(1, /*log=*/true);
    fail(job, "server-2");
    CHECK_FALSE(job.run->ended());
    CHECK(job.View().phase == JobPhase::kTraining);
    const bool told = std::any_of(job.events.begin(), job.events.end(), [](const Event& event) {
      const auto* said = std::get_if<ServerFailed>(&event);
      return said != nullptr && said->node == "server-2" && said->why == "wal-3: no space";
    });
    CHECK(told);
    job.ApplyAll();
    CHECK(job.run->shards().complete());
    job.run->OnServerDraining(job.servers.at("server-2"), false, job.now, job.events);
    CHECK(job.run->shards().CopiesOn("server-2") == 0);
    job.Kill({"server-2"});
    job.Start(2);
    job.ApplyAll();
    job.ApplyAll();
    CHECK(job.run->shards().CopiesOn("server-2") > 0);
  }
  SECTION("without replicas it is awaited with its log, and may say so again") {
    Story job(0, /*log=*/true);
    const std::vector<int> shards = job.ShardsOf("server-2");
    fail(job, "server-2");
    fail(job, "server-2");
    CHECK(job.View().phase == JobPhase::kRecovering);
    job.Kill({"server-2"});
    job.Start(2, shards);
    job.ApplyAll();
    CHECK(job.View().phase == JobPhase::kTraining);
  }
  SECTION("without a log either, the job ends, and says why") {
    Story job(0);
    fail(job, "server-2");
    REQUIRE(job.run->state() == JobState::kFailed);
    CHECK(job.View().failure ==
          Failure{FailureReason::kServerLost,
                  "server-2, which held shards of the job, is gone: wal-3: no space"});
  }
}

TEST_CASE("Job: a log that cannot be read back leaves the others", "[scheduler][core]") {
  Story job(1, /*log=*/true, /*server_count=*/2);
  std::vector<int> all;
  for (const ShardRoute& route : job.run->routing()->shards) all.push_back(route.key.shard.value());
  job.Kill({"server-1", "server-2"});
  const bool first = GENERATE(false, true);  // The other comes back before the first has read.
  job.Start(1, all);
  if (first) job.Start(2, all);
  REQUIRE(job.ShardsOf("server-1") == all);
  TableReport report{"job-1", job.run->routing()->generation, Generation(0), {}, {}};
  report.failure = {FailureReason::kBadData, "wal-1: record 7: checksum is wrong"};
  job.run->OnTableReport("server-1", report, job.now, job.events);
  CHECK_FALSE(job.run->ended());
  if (!first) job.Start(2, all);
  CHECK(job.ShardsOf("server-1").empty());
  job.servers.erase("server-1");
  job.ApplyAll();
  CHECK(job.View().phase == JobPhase::kTraining);
}

TEST_CASE("Job: who took over from its log is awaited when it dies before it has reported",
          "[scheduler][core]") {
  Story job(1, /*log=*/true, /*server_count=*/2);
  std::vector<int> all;
  for (const ShardRoute& route : job.run->routing()->shards) all.push_back(route.key.shard.value());
  job.Kill({"server-1", "server-2"});
  job.Start(1, all);
  job.Start(2, all);
  REQUIRE(job.ShardsOf("server-1") == all);
  job.Kill({"server-1"});  // It may have acknowledged pushes that the other log does not have.
  CHECK(job.ShardsOf("server-2").empty());
  job.Start(1, all);
  CHECK(job.ShardsOf("server-1") == all);
  job.ApplyAll();
  CHECK(job.View().phase == JobPhase::kTraining);
}

TEST_CASE("Job: what a server registered with is durable at once", "[scheduler][core]") {
  Story job(0, /*log=*/true);
  const std::vector<int> shards = job.ShardsOf("server-2");
  const std::vector<int> others = job.ShardsOf("server-3");
  job.Kill({"server-2", "server-3"});
  const uint64_t before = job.run->durable_version();
  job.Start(2, shards);
  CHECK(job.run->durable_version() > before);
}

TEST_CASE("Job: a log that an earlier primary left is not taken for the last one's",
          "[scheduler][core]") {
  Story job(1, /*log=*/true);
  const std::vector<int> shards = job.ShardsOf("server-1");
  job.Kill({"server-1"});  // Its replicas go on, alone until others are filled.
  job.Kill({"server-2", "server-3"});
  REQUIRE(job.View().phase == JobPhase::kRecovering);
  std::vector<int> all;
  for (const ShardRoute& route : job.run->routing()->shards) all.push_back(route.key.shard.value());
  job.Start(1, all);
  CHECK(job.run->restore_source().log_term == Term(0));
  job.Start(2, all);
  CHECK(job.run->restore_source().log_term == Term(0));
  job.Start(3, all);
  CHECK(job.run->restore_source().log_term > Term(0));
  CHECK(job.ShardsOf("server-1").empty());
}

TEST_CASE("Job: a replica that does not answer leaves and is filled again", "[scheduler][core]") {
  Story job(1, /*log=*/false, /*server_count=*/2);
  const ShardRoute route = job.run->routing()->shards[0];
  const ServerRef primary = job.Primary(route);
  const ServerRef replica =
      job.run->routing()->servers[static_cast<size_t>(route.replicas[0].server)];
  const auto report = [&](Generation applied, ReplicaReport::State state) {
    const ReplicaReport said{route.key, route.term, replica.node, replica.incarnation, state};
    job.run->OnTableReport(primary.node,
                           {"job-1", applied, job.run->membership().generation, {}, {said}},
                           job.now, job.events);
  };
  const Generation before = job.run->routing()->generation;
  report(before, ReplicaReport::State::kUnreachable);
  CHECK(job.run->routing()->shards[0].replicas.empty());
  // It comes back only once the primary knows that it left, and what was said before is void.
  report(before, ReplicaReport::State::kFilled);
  CHECK(job.run->routing()->shards[0].replicas.empty());
  report(job.run->routing()->generation, ReplicaReport::State::kUnreachable);
  REQUIRE(job.run->routing()->shards[0].replicas.size() == 1);
  report(before, ReplicaReport::State::kFilled);
  CHECK_FALSE(job.run->routing()->shards[0].replicas[0].in_sync);
  report(job.run->routing()->generation, ReplicaReport::State::kFilled);
  CHECK(job.run->routing()->shards[0].replicas[0].in_sync);
}

TEST_CASE("Job: a drained server's shards are filled elsewhere first, also without replicas",
          "[scheduler][core]") {
  for (const int replicas : {0, 1}) {
    Story job(replicas);
    const std::vector<int> shards = job.ShardsOf("server-2");
    job.run->OnServerDraining(job.servers.at("server-2"), true, job.now, job.events);
    CHECK(job.ShardsOf("server-2") == shards);  // Nothing is handed over unfilled.
    job.ApplyAll();
    job.ApplyAll();
    CHECK(job.run->shards().CopiesOn("server-2") == 0);
    CHECK_FALSE(job.run->UsesServer("server-2"));
    CHECK(job.run->shards().complete());
    CHECK(job.View().phase == JobPhase::kTraining);
  }
}

TEST_CASE("Job: the only server cannot be drained until another comes", "[scheduler][core]") {
  Story job(0, /*log=*/false, /*server_count=*/1);
  job.run->OnServerDraining(job.servers.at("server-1"), true, job.now, job.events);
  job.ApplyAll();
  CHECK(job.run->shards().CopiesOn("server-1") > 0);
  CHECK_FALSE(job.run->shards().CanMoveFrom("server-1"));
  job.Start(2);
  job.ApplyAll();
  job.ApplyAll();
  CHECK(job.run->shards().CopiesOn("server-1") == 0);
}

TEST_CASE("Job: a server that joins takes its part of the shards", "[scheduler][core]") {
  Story job(0, /*log=*/false, /*server_count=*/1);
  const size_t shards = job.run->routing()->shards.size();
  REQUIRE(shards >= 4);
  job.Start(2);
  for (size_t i = 0; i < shards; ++i) job.ApplyAll();
  const size_t moved = job.ShardsOf("server-2").size();
  CHECK(moved + 1 >= shards / 2);
  CHECK(moved <= shards / 2 + 1);
}

}  // namespace
}  // namespace capstan::scheduler
