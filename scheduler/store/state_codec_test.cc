#include "scheduler/store/state_codec.h"

#include <catch2/catch.hpp>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/testing/status_matchers.h"
#include "scheduler/core/testing/replies_of.h"
#include "scheduler/store/schema_version.h"
#include "scheduler/store/testing/memory_store.h"

namespace capstan::scheduler::state_codec_test {
namespace {

const absl::Time kNoon = absl::FromUnixSeconds(1'700'000'000);

// A scheduler core, whose nodes and tasks the test plays; the changes of each step are written at
// once.
struct Desk {
  MemoryStore store;
  std::unique_ptr<SchedulerCore> core;
  Instant now = Instant::FromOrigin(absl::Hours(1));
  absl::Time wall = kNoon;
  Actions actions;
  uint64_t ticket = 0;

  Desk() { Restart(); }
  void Restart() {
    actions = {};
    auto restored =
        RestoreCore(store.Load().value(), {.lease = absl::Seconds(5)}, {now, wall}, actions);
    REQUIRE_OK(restored.status());
    core = *std::move(restored);
    Write();
  }
  void Write() {
    REQUIRE_OK(store.Write(EncodeChanges(*core, actions.changes, {now, wall})));
    actions.changes = {};
  }
  void Pass(absl::Duration step) {
    now = now + step;
    wall += step;
    core->Tick(now, actions);
    Write();
  }
  Registration Join(Role role, const std::string& name) {
    const auto joined = core->Register(
        {.name = name, .role = role, .address = name + ":1", .task_capacity = 1, .identity = name},
        now, actions);
    Write();
    return joined.value();
  }
  // The server reports that it has done all assigned work.
  void SyncServer(const Registration& node, uint64_t membership) {
    NodeReport report{.node = node.node, .incarnation = node.incarnation};
    report.tables.push_back({"job-1", Generation(1), Generation(membership), {}});
    REQUIRE_OK(core->SyncNode(Ticket(++ticket), report, now, actions));
    Write();
  }
  Assignment SyncTask(TaskReport report) {
    actions.replies.clear();
    REQUIRE_OK(core->SyncTask(Ticket(++ticket), report, now, actions));
    Write();
    const std::vector<TaskReply> replies = testing::RepliesOf<TaskReply>(actions);
    return replies.empty() ? Assignment() : replies.back().assignment;
  }
};

JobPlan Plan(const std::string& id) {
  JobPlan plan;
  plan.id = id;
  plan.consistency.mode = ConsistencyMode::kAsp;
  plan.batch_size = 10;
  plan.train_count = 100'000;
  plan.tables = {170};
  plan.export_path = "/out";
  return plan;
}

TEST_CASE("State codec: a job that trains goes on after a restart where it was",
          "[scheduler][store]") {
  Desk desk;
  const Registration server = desk.Join(Role::kServer, "server-1");
  const Registration worker = desk.Join(Role::kWorker, "worker-1");
  REQUIRE_OK(desk.core->SubmitJob(Plan("job-1"), desk.now, desk.actions));
  desk.Write();
  const TaskKey key{"job-1", Rank(0), Incarnation(3)};
  TaskReport report{.task = key};
  desk.SyncServer(server, 2);
  report.assignment_seen = desk.SyncTask(report).generation;
  desk.SyncServer(server, 3);
  const Assignment leased = desk.SyncTask(report);
  REQUIRE(leased.samples.size() == 2);
  report.assignment_seen = leased.generation;
  report.samples = {{leased.samples[0].id, 20}};
  report.totals = {.samples = 20, .loss = 10, .correct = 5};
  desk.SyncTask(report);
  desk.Pass(absl::Seconds(2));

  const JobView before = desk.core->Job("job-1", desk.now).value();
  const std::vector<NodeView> nodes = desk.core->Nodes();
  desk.wall += absl::Minutes(5);
  desk.now = Instant::FromOrigin(absl::Seconds(3));
  desk.Restart();

  const JobView after = desk.core->Job("job-1", desk.now).value();
  CHECK(after.state == JobState::kRunning);
  CHECK(after.phase == JobPhase::kTraining);
  CHECK(after.samples_done == 20);
  CHECK(after.loss == 0.5);
  CHECK(after.revision > before.revision);
  CHECK(desk.now - *after.started == absl::Minutes(5) + absl::Seconds(2));
  REQUIRE(desk.core->Nodes().size() == nodes.size());
  for (const NodeView& node : desk.core->Nodes()) CHECK(node.alive);
  CHECK(desk.core->Nodes()[1].tasks == 1);
  CHECK((*desk.core->jobs().RoutingOf("job-1"))->shards.size() == 1);

  // All incarnations are unchanged; the task holds the same leases and repeats its report.
  desk.SyncServer(server, 3);
  report.samples = {{leased.samples[0].id, 30}};
  report.totals = {.samples = 30, .loss = 15, .correct = 5};
  CHECK(desk.SyncTask(report).generation == Generation(0));
  CHECK(desk.core->Job("job-1", desk.now)->samples_done == 30);
  // New incarnations do not reuse old numbers.
  CHECK(desk.Join(Role::kWorker, "worker-2").incarnation == Incarnation(4));
  CHECK(worker.incarnation == Incarnation(2));
}

TEST_CASE("State codec: what was evaluated before a restart counts once after it",
          "[scheduler][store]") {
  Desk desk;
  const Registration server = desk.Join(Role::kServer, "server-1");
  desk.Join(Role::kWorker, "worker-1");
  JobPlan plan = Plan("job-1");
  plan.objective = Objective::kClicks;
  plan.train_count = 10;
  plan.test_count = 320;  // Two leases.
  REQUIRE_OK(desk.core->SubmitJob(plan, desk.now, desk.actions));
  desk.Write();
  TaskReport report{.task = {"job-1", Rank(0), Incarnation(3)}};
  desk.SyncServer(server, 2);
  report.assignment_seen = desk.SyncTask(report).generation;
  desk.SyncServer(server, 3);
  const Assignment training = desk.SyncTask(report);
  report.assignment_seen = training.generation;
  report.samples = {{training.samples.at(0).id, 10}};
  report.totals = {.samples = 10, .loss = 5, .correct = 5};
  const Assignment evaluation = desk.SyncTask(report);
  REQUIRE(evaluation.samples.size() == 2);

  // The 100 clicks of the first lease score above all other samples, those of the second below.
  const auto evaluated = [](const SampleLease& lease, float click_score) {
    SampleReport sample{lease.id, lease.positions.end, 160, 80};
    for (int i = 0; i < 160; ++i) sample.scores.Add(i < 100 ? click_score : 0, i < 100);
    return sample;
  };
  report.assignment_seen = evaluation.generation;
  report.samples = {evaluated(evaluation.samples[0], 1)};
  desk.SyncTask(report);
  desk.Restart();
  desk.SyncServer(server, 3);
  report.samples.push_back(evaluated(evaluation.samples[1], -1));  // The first is repeated.
  desk.SyncTask(report);
  const JobView view = desk.core->Job("job-1", desk.now).value();
  REQUIRE(view.results.size() == 1);
  CHECK(view.results[0].test_auc == 0.5);
  CHECK(view.results[0].test_loss == 1);
  desk.Restart();
  CHECK(desk.core->Job("job-1", desk.now)->results[0].test_auc == 0.5);
}

TEST_CASE("State codec: who died while the scheduler was away runs out of a fresh lease",
          "[scheduler][store]") {
  Desk desk;
  desk.Join(Role::kServer, "server-1");
  desk.Join(Role::kWorker, "worker-1");
  REQUIRE_OK(desk.core->SubmitJob(Plan("job-1"), desk.now, desk.actions));
  desk.Write();
  desk.now = desk.now + absl::Hours(1);
  desk.Restart();
  CHECK(desk.core->Job("job-1", desk.now)->state == JobState::kRunning);
  // A node registers now and then, so the scheduler does not assume that its network is down.
  desk.Pass(absl::Milliseconds(2500));  // The time in which nodes come back.
  desk.now = desk.now + absl::Milliseconds(2400);
  desk.Join(Role::kWorker, "worker-2");
  desk.Pass(absl::Milliseconds(100));
  desk.now = desk.now + absl::Milliseconds(2400);
  desk.Join(Role::kWorker, "worker-2");
  desk.Pass(absl::Milliseconds(99));  // The time in which nodes come back, and the lease.
  CHECK(desk.core->Job("job-1", desk.now)->phase == JobPhase::kPlacing);
  desk.Pass(absl::Milliseconds(1));
  CHECK(desk.core->Job("job-1", desk.now)->phase == JobPhase::kRecovering);
  // The job has not trained, so any server would do.
  const Instant late = desk.now + Plan("job-1").server_wait;
  while (desk.now < late) desk.Pass(absl::Milliseconds(100));
  CHECK(desk.core->Job("job-1", desk.now)->state == JobState::kFailed);
  CHECK(desk.core->Job("job-1", desk.now)->failure.reason == FailureReason::kServerLost);
}

TEST_CASE("State codec: waiting jobs keep their order, ended ones their history, numbers go on",
          "[scheduler][store]") {
  Desk desk;
  // The order by name would be the reverse.
  for (const std::string id : {"b", "a"}) {
    CHECK(desk.core->TakeJobNumber() == (id == "b" ? 1 : 2));
    REQUIRE_OK(desk.core->SubmitJob(Plan(id), desk.now, desk.actions));
  }
  REQUIRE_OK(desk.core->SubmitJob(Plan("stopped"), desk.now, desk.actions));
  REQUIRE_OK(desk.core->StopJob("stopped", desk.now, desk.actions));
  desk.Write();
  desk.Restart();
  CHECK(desk.core->Job("a", desk.now)->state == JobState::kPending);
  CHECK(desk.core->Job("stopped", desk.now)->state == JobState::kStopped);
  CHECK(desk.core->TakeJobNumber() == 3);
  desk.Join(Role::kServer, "server-1");
  desk.Join(Role::kWorker, "worker-1");
  CHECK(desk.core->Job("b", desk.now)->state == JobState::kRunning);
  CHECK(desk.core->Job("a", desk.now)->state == JobState::kPending);
}

TEST_CASE("State codec: after a restart jobs have their folders as before", "[scheduler][store]") {
  Desk desk;
  const auto submit = [&desk](const std::string& id) {
    JobPlan plan = Plan(id);
    plan.folders = {"/out", "/out/checkpoints"};
    const absl::Status status = desk.core->SubmitJob(plan, desk.now, desk.actions);
    desk.Write();
    return status;
  };
  REQUIRE_OK(submit("job-1"));
  desk.Restart();
  CHECK_STATUS(submit("job-2"), absl::StatusCode::kFailedPrecondition, "of job-1");
  REQUIRE_OK(desk.core->StopJob("job-1", desk.now, desk.actions));
  desk.Write();
  desk.Restart();
  REQUIRE_OK(submit("job-2"));
}

TEST_CASE("State codec: a damaged row is named", "[scheduler][store]") {
  Desk desk;
  desk.Join(Role::kServer, "server-1");
  desk.Join(Role::kWorker, "worker-1");
  REQUIRE_OK(desk.core->SubmitJob(Plan("job-1"), desk.now, desk.actions));
  desk.Write();
  StoreRows rows = desk.store.Load().value();
  REQUIRE(rows.size() == 4);
  const std::string key = GENERATE("revisions", "nodes", "job/job-1", "routing/job-1");
  Actions actions;
  SECTION("cut short") {
    rows.at(key).resize(rows.at(key).size() / 2);
    CHECK_STATUS(RestoreCore(rows, {}, {desk.now, kNoon}, actions).status(),
                 absl::StatusCode::kDataLoss, key);
  }
  SECTION("a routing table is missing") {
    rows.erase("routing/job-1");
    CHECK_STATUS(RestoreCore(rows, {}, {desk.now, kNoon}, actions).status(),
                 absl::StatusCode::kDataLoss, "no routing table");
  }
}

TEST_CASE("State codec: a job whose row is cut short anywhere is not loaded, others stay",
          "[scheduler][store]") {
  Desk desk;
  desk.Join(Role::kServer, "server-1");
  desk.Join(Role::kWorker, "worker-1");
  REQUIRE_OK(desk.core->SubmitJob(Plan("job-1"), desk.now, desk.actions));
  desk.Write();
  const StoreRows rows = desk.store.Load().value();
  const std::string key = GENERATE("job/job-1", "routing/job-1");
  SchedulerCore core{SchedulerCore::Options()};
  for (size_t size = 0; size < rows.at(key).size(); ++size) {
    StoreRows cut = rows;
    cut.at(key).resize(size);
    CHECK_STATUS(LoadJob(cut, "job-1", {desk.now, kNoon}, core), absl::StatusCode::kDataLoss,
                 "the row of job-1");
    CHECK(core.jobs().Find("job-1") == nullptr);
  }
  REQUIRE_OK(LoadJob(rows, "job-1", {desk.now, kNoon}, core));
  // A row under another job's name.
  StoreRows other = rows;
  other["job/job-2"] = rows.at("job/job-1");
  CHECK_STATUS(LoadJob(other, "job-2", {desk.now, kNoon}, core), absl::StatusCode::kDataLoss,
               "it is of job-1");
}

TEST_CASE("State codec: a job_state of another format or of a newer version is refused",
          "[scheduler][store]") {
  ResumePoint at;
  at.batches = 7;
  CHECK(DecodeResumePoint(EncodeResumePoint(at))->batches == 7);
  const auto of = [&](uint32_t format, int64_t fields) {
    return DecodeResumePoint(
        EncodeState(Moment(), [&](auto& archive) { archive(format, fields, at); }));
  };
  CHECK_STATUS(of(3, 0), absl::StatusCode::kDataLoss, "format 3");
  CHECK_STATUS(of(4, kFieldsVersion + 1), absl::StatusCode::kDataLoss,
               absl::StrCat("fields version ", kFieldsVersion + 1));
  CHECK_STATUS(DecodeResumePoint(""), absl::StatusCode::kDataLoss, "job_state");
}

}  // namespace
}  // namespace capstan::scheduler::state_codec_test
