// Issue 20: a scheduler that goes on from an older copy of its store, as a backup that was put
// back, among daemons and tasks that have seen more.
#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/testing/status_matchers.h"
#include "scheduler/core/scheduler_core.h"
#include "scheduler/core/testing/fake_cluster.h"
#include "scheduler/core/testing/servers_story.h"
#include "scheduler/store/memory_store.h"
#include "scheduler/store/state_codec.h"

namespace capstan::scheduler {
namespace {

constexpr char kJob[] = "job-1";
constexpr char kLost[] =
    ": the scheduler's store is an older copy of itself, and what it decided since is lost; go on "
    "from a checkpoint";

// A server, a worker and a job that runs there, and then the next scheduler on a copy of the store.
struct Story {
  Story() {
    core = std::make_unique<SchedulerCore>(SchedulerCore::Options{});
    server = Register({.name = "server-1", .address = "s:1"});
    worker =
        Register({.name = "worker-1", .role = Role::kWorker, .address = "w:1", .task_capacity = 1});
    Actions submitted;
    REQUIRE_OK(core->SubmitJob(testing::Plan(kJob, 1), now, submitted));
    Keep(submitted);
    REQUIRE(core->Job(kJob, now)->state == JobState::kRunning);
    core =
        RestoreCore(store.Load().value(), {.first_incarnation = Incarnation(1000)}, At(), actions)
            .value();
  }
  Moment At() const { return {now, absl::UnixEpoch() + now.SinceOrigin()}; }
  void Keep(const Actions& done) {
    REQUIRE_OK(store.Write(EncodeChanges(*core, done.changes, At())));
  }
  Incarnation Register(const NodeInfo& info) {
    Actions registered;
    const auto registration = core->Register(info, now, registered);
    REQUIRE_OK(registration.status());
    Keep(registered);
    return registration->incarnation;
  }
  absl::Status Sync(const NodeReport& report) {
    actions = {};
    return core->SyncNode(Ticket(++ticket), report, now, actions);
  }
  JobView View() const { return core->Job(kJob, now).value(); }
  void CheckEnded(const std::string& seen) const {
    REQUIRE(View().state == JobState::kFailed);
    CHECK(View().failure == Failure{FailureReason::kInternal, absl::StrCat(seen, kLost)});
  }

  Instant now = Instant::FromOrigin(absl::Seconds(100));
  MemoryStore store;
  std::unique_ptr<SchedulerCore> core;
  Incarnation server;
  Incarnation worker;
  Actions actions;  // Of the last Sync.
  uint64_t ticket = 0;
};

TEST_CASE("Older store: a job goes on that nobody has seen more of", "[scheduler][core]") {
  Story story;
  NodeReport report;
  report.node = "server-1";
  report.incarnation = story.server;
  report.generation_seen = Generation(2);
  report.tables = {{kJob, Generation(1), Generation(0), {}}};
  REQUIRE_OK(story.Sync(report));
  CHECK(story.View().state == JobState::kRunning);
}

TEST_CASE("Older store: a node that has seen a later desired state ends its jobs",
          "[scheduler][core]") {
  Story story;
  const bool of_server = GENERATE(true, false);
  // Whatever it held is gone: it was told to drop it.
  NodeReport report;
  report.node = of_server ? "server-1" : "worker-1";
  report.incarnation = of_server ? story.server : story.worker;
  report.generation_seen = Generation(7);
  REQUIRE_OK(story.Sync(report));
  story.CheckEnded(absl::StrCat(report.node, " has seen desired state 7, expected at most 2"));
  // A state of a number that it has seen it would not take in.
  REQUIRE(story.actions.node_replies.size() == 1);
  CHECK(story.actions.node_replies[0].generation > Generation(7));
  CHECK(story.actions.node_replies[0].changed);
}

TEST_CASE("Older store: a node's life that the store does not know ends the jobs that it holds",
          "[scheduler][core]") {
  Story story;
  NodeReport report;
  report.node = "server-2";
  report.incarnation = Incarnation(999);
  report.tables = {{kJob, Generation(1), Generation(0), {}}};
  SECTION("as it is of a newer store") {
    CHECK(absl::IsNotFound(story.Sync(report)));
    story.CheckEnded(
        "server-2 has incarnation 999, expected one that this scheduler has given out");
  }
  SECTION("not if it is one that ended before") {
    report.incarnation = Incarnation(1);
    CHECK(absl::IsNotFound(story.Sync(report)));
    CHECK(story.View().state == JobState::kRunning);
  }
  SECTION("not if it holds nothing") {
    report.tables.clear();
    CHECK(absl::IsNotFound(story.Sync(report)));
    CHECK(story.View().state == JobState::kRunning);
  }
}

TEST_CASE("Older store: a task's life that the store does not know ends its job",
          "[scheduler][core]") {
  Story story;
  TaskReport report;
  report.task = {kJob, Rank(0), Incarnation(998)};
  CHECK(absl::IsAborted(story.core->SyncTask(Ticket(77), report, story.now, story.actions)));
  story.CheckEnded("task 0 has incarnation 998, expected one that this scheduler has given out");
}

TEST_CASE("Older store: a server that holds what it is not to have by an older table ends the job",
          "[scheduler][core]") {
  ServersStory job(0, /*log=*/false, /*server_count=*/2);
  const Generation seen = job.run->routing()->generation.Next();
  TableReport report{"job-1", seen, job.run->membership().generation, {}, {}};
  job.run->OnTableReport("server-9", report, job.now, job.events);
  REQUIRE(job.run->state() == JobState::kFailed);
  CHECK_THAT(job.View().failure.message,
             Catch::StartsWith(absl::StrCat("server-9 has seen routing table ", seen.value())) &&
                 Catch::EndsWith(kLost));
}

TEST_CASE("Older store: a log of a later term ends the job", "[scheduler][core]") {
  ServersStory job(0, /*log=*/true);
  job.Kill({"server-2"});
  const ShardKey shard{TableId(0), ShardId(job.ShardsOf("server-2")[0])};
  StoredShard log{"job-1", shard, Term(99), Position(5), "cc-1", Incarnation(50)};
  SECTION("if it is this job's") {
    job.run->OnServerJoined(job.Life(2), {&log, 1}, /*draining=*/false, job.now, job.events);
    REQUIRE(job.run->state() == JobState::kFailed);
    CHECK_THAT(job.View().failure.message,
               Catch::StartsWith("the log of server-2 has seen term 99, expected at most ") &&
                   Catch::EndsWith(kLost));
  }
  SECTION("not if it is of another job that had this one's id") {
    log.unique_id = "aa-1";
    job.run->OnServerJoined(job.Life(2), {&log, 1}, /*draining=*/false, job.now, job.events);
    CHECK_FALSE(job.run->ended());
  }
}

}  // namespace
}  // namespace capstan::scheduler
