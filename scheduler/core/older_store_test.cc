// Issue 20: tests a scheduler that goes on from an older copy of its store, such as a restored
// backup, while daemons and tasks know later decisions.
#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/testing/status_matchers.h"
#include "scheduler/core/core_archive.h"
#include "scheduler/core/scheduler_core.h"
#include "scheduler/core/testing/fake_cluster.h"
#include "scheduler/core/testing/replies_of.h"
#include "scheduler/core/testing/servers_fixture.h"
#include "scheduler/store/state_codec.h"
#include "scheduler/store/testing/memory_store.h"

namespace capstan::scheduler::older_store_test {
namespace {

using testing::RepliesOf;

constexpr char kJob[] = "job-1";
constexpr char kLost[] =
    " knows of decisions that the scheduler does not know: the scheduler's store is an older copy "
    "of itself, and what it decided since is lost; go on from a checkpoint";

// A server, a worker, and a job that runs there or waits; then the next scheduler, on a copy of the
// store from before the decision `lost`.
struct Fixture {
  explicit Fixture(bool runs = true, bool log = false) {
    core = std::make_unique<SchedulerCore>(SchedulerCore::Options{.number = 7});
    server = Register({.name = "server-1", .address = "s:1"});
    if (runs) worker = Register(Worker());
    Actions submitted;
    JobPlan plan = testing::Plan(kJob, 1);
    plan.log = log;
    REQUIRE_OK(core->SubmitJob(plan, now, submitted));
    Keep(submitted);
    REQUIRE(core->Job(kJob, now)->state == (runs ? JobState::kRunning : JobState::kPending));
    REQUIRE_OK(Sync(Report({})));
    Keep(actions);
    known = CoreArchive(core.get()).revisions().current();
    const StoreRows copy = store.Load().value();
    Register({.name = "server-9", .address = "s:9"});
    lost = CoreArchive(core.get()).revisions().current();
    REQUIRE(lost.count > known.count);
    core = RestoreCore(copy, {.first_incarnation = Incarnation(1000), .number = 9}, At(), actions)
               .value();
  }
  static NodeInfo Worker() {
    return {.name = "worker-1", .role = Role::kWorker, .address = "w:1", .task_capacity = 1};
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
  NodeReport Report(const StoreRevision& seen) const {
    NodeReport report;
    report.node = "server-1";
    report.incarnation = server;
    report.generation_seen = Generation(2);
    report.revision_seen = seen;
    return report;
  }
  absl::Status Sync(const NodeReport& report) {
    actions = {};
    return core->SyncNode(Ticket(++ticket), report, now, actions);
  }
  JobView View() const { return core->Job(kJob, now).value(); }
  void CheckEnded(const std::string& witness) const {
    REQUIRE(View().state == JobState::kFailed);
    CHECK(View().failure == Failure{FailureReason::kInternal, absl::StrCat(witness, kLost)});
  }

  Instant now = Instant::FromOrigin(absl::Seconds(100));
  MemoryStore store;
  std::unique_ptr<SchedulerCore> core;
  Incarnation server;
  Incarnation worker;
  StoreRevision known;  // The last revision in the copy.
  StoreRevision lost;   // A later revision.
  Actions actions;      // Actions of the last Sync.
  uint64_t ticket = 0;
};

TEST_CASE("Older store: a job goes on that nobody has seen more of", "[scheduler][core]") {
  Fixture fixture;
  NodeReport report = fixture.Report(fixture.known);
  report.tables = {{kJob, Generation(1), Generation(0), {}}};
  REQUIRE_OK(fixture.Sync(report));
  CHECK(fixture.View().state == JobState::kRunning);
  SECTION("what it is told is of this scheduler") {
    fixture.now = fixture.now + absl::Seconds(1);
    fixture.core->Tick(fixture.now, fixture.actions);
    REQUIRE(RepliesOf<NodeReply>(fixture.actions).size() == 1);
    CHECK(RepliesOf<NodeReply>(fixture.actions)[0].revision ==
          CoreArchive(fixture.core.get()).revisions().current());
    CHECK(RepliesOf<NodeReply>(fixture.actions)[0].revision.scheduler == 9);
  }
}

TEST_CASE("Older store: a node that has heard of more ends its jobs", "[scheduler][core]") {
  Fixture fixture;
  const bool of_server = GENERATE(true, false);
  const bool later = GENERATE(true, false);  // The new scheduler has made as many decisions.
  // The node holds nothing, because it was told to drop everything.
  NodeReport report = fixture.Report(fixture.lost);
  if (!of_server) report.node = "worker-1";
  if (!of_server) report.incarnation = fixture.worker;
  report.generation_seen = Generation(7);
  for (int i = 0; later && i < 10; ++i) {
    fixture.Register({.name = absl::StrCat("server-", 20 + i), .address = "s:20"});
  }
  REQUIRE_OK(fixture.Sync(report));
  fixture.CheckEnded(report.node);
  // The node would ignore a desired state with a number that it has seen.
  REQUIRE(RepliesOf<NodeReply>(fixture.actions).size() == 1);
  CHECK(RepliesOf<NodeReply>(fixture.actions)[0].generation > Generation(7));
  CHECK(RepliesOf<NodeReply>(fixture.actions)[0].changed);
}

// Even if all processes that knew later decisions have died, a server's log may have a later
// membership than the store, and it accepts no earlier one.
TEST_CASE("Older store: memberships go on above those that logs may have", "[scheduler][core]") {
  Fixture fixture;
  NodeReport report = fixture.Report(fixture.known);
  report.generation_seen = Generation(0);
  REQUIRE_OK(fixture.Sync(report));
  REQUIRE(RepliesOf<NodeReply>(fixture.actions).size() == 1);
  REQUIRE(RepliesOf<NodeReply>(fixture.actions)[0].tables.size() == 1);
  CHECK(RepliesOf<NodeReply>(fixture.actions)[0].tables[0].membership.generation >=
        Generation(1000));
}

TEST_CASE("Older store: a node that the store does not know ends the jobs that it holds",
          "[scheduler][core]") {
  Fixture fixture;
  NodeReport report = fixture.Report(fixture.lost);
  report.node = "server-9";
  report.incarnation = Incarnation(999);
  report.tables = {{kJob, Generation(1), Generation(0), {}}};
  SECTION("as it is of a newer store") {
    CHECK(absl::IsNotFound(fixture.Sync(report)));
    fixture.CheckEnded("server-9");
  }
  SECTION("not if it has heard of nothing that this one does not know") {
    report.revision_seen = fixture.known;
    CHECK(absl::IsNotFound(fixture.Sync(report)));
    CHECK(fixture.View().state == JobState::kRunning);
  }
  SECTION("not if it holds nothing") {
    report.tables.clear();
    CHECK(absl::IsNotFound(fixture.Sync(report)));
    CHECK(fixture.View().state == JobState::kRunning);
  }
}

TEST_CASE("Older store: a job that ran, and by the store has not begun, ends",
          "[scheduler][core]") {
  Fixture fixture(/*runs=*/false);
  NodeReport report = fixture.Report(fixture.lost);
  report.tables = {{kJob, Generation(1), Generation(0), {}}};
  REQUIRE_OK(fixture.Sync(report));
  fixture.CheckEnded("server-1");
  fixture.Register(Fixture::Worker());
  CHECK(fixture.View().state == JobState::kFailed);
}

TEST_CASE("Older store: a task that has heard of more ends its job", "[scheduler][core]") {
  Fixture fixture;
  TaskReport report;
  report.task = {kJob, Rank(0), Incarnation(998)};
  report.revision_seen = fixture.lost;
  CHECK(absl::IsAborted(fixture.core->SyncTask(Ticket(77), report, fixture.now, fixture.actions)));
  fixture.CheckEnded("task 0");
}

// A power cut ended all processes that knew later decisions.
TEST_CASE("Older store: a log whose writer had heard of more ends its job", "[scheduler][core]") {
  Fixture fixture(/*runs=*/true, /*log=*/true);
  StoredShard log{kJob, {TableId(0), ShardId(0)}, Term(1), Position(5), "", Incarnation(50)};
  log.seen = fixture.lost;
  SECTION("if it is this job's") {
    fixture.Register({.name = "server-2", .address = "s:2", .stored = {log}});
    fixture.CheckEnded("the log of server-2");
  }
  SECTION("not if the store has it, too") {
    log.seen = fixture.known;
    fixture.Register({.name = "server-2", .address = "s:2", .stored = {log}});
    CHECK(fixture.View().state == JobState::kRunning);
  }
  SECTION("not if it is of another job that had this one's id") {
    log.unique_id = "aa-1";
    fixture.Register({.name = "server-2", .address = "s:2", .stored = {log}});
    CHECK(fixture.View().state == JobState::kRunning);
  }
}

// Seed 3744246546: the copy was of before the job began, and only logs were left of it.
TEST_CASE("Older store: a log, or a task, ends a job that by the store has not begun",
          "[scheduler][core]") {
  Fixture fixture(/*runs=*/false, /*log=*/true);
  StoredShard log{kJob, {TableId(0), ShardId(0)}, Term(1), Position(5), "", Incarnation(50)};
  log.seen = fixture.lost;
  SECTION("its log") {
    fixture.Register({.name = "server-2", .address = "s:2", .stored = {log}});
    fixture.CheckEnded("the log of server-2");
    fixture.Register(Fixture::Worker());
    CHECK(fixture.View().state == JobState::kFailed);
  }
  SECTION("its task") {
    TaskReport report;
    report.task = {kJob, Rank(0), Incarnation(998)};
    report.revision_seen = fixture.lost;
    CHECK(
        absl::IsNotFound(fixture.core->SyncTask(Ticket(77), report, fixture.now, fixture.actions)));
    fixture.CheckEnded("task 0");
  }
  SECTION("not the log of another job that had this one's id") {
    log.unique_id = "aa-1";
    fixture.Register({.name = "server-2", .address = "s:2", .stored = {log}});
    CHECK(fixture.View().state == JobState::kPending);
  }
  SECTION("nor one that the store has, too") {
    log.seen = fixture.known;
    fixture.Register({.name = "server-2", .address = "s:2", .stored = {log}});
    CHECK(fixture.View().state == JobState::kPending);
  }
}

}  // namespace
}  // namespace capstan::scheduler::older_store_test
