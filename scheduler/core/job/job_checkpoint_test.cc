// Tests checkpoints of whole jobs, with FakeCluster.
#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "common/testing/status_matchers.h"
#include "scheduler/core/testing/fake_cluster.h"
#include "scheduler/core/testing/replies_of.h"

namespace capstan::scheduler::job_checkpoint_test {
namespace {

using testing::FakeCluster;
using testing::RepliesOf;

JobPlan Plan(ConsistencyMode mode) {
  JobPlan plan;
  plan.id = "job-1";
  plan.consistency.mode = mode;
  plan.workers = 2;
  plan.epochs = 2;
  plan.batch_size = 10;
  plan.consistency.slots = 4;
  plan.train_count = 20'000;
  plan.test_count = 100;
  plan.tables = {300'000};
  plan.export_path = "/out";
  plan.checkpoint_folder = "/checkpoints";
  return plan;
}

struct Fixture : FakeCluster {
  explicit Fixture(double checkpoint_fails = 0) : Fixture(Given(checkpoint_fails)) {}
  explicit Fixture(const Options& options) : FakeCluster(options) {
    AddServer("server-1");
    AddServer("server-2");
    AddWorker("worker-1", 1);
    AddWorker("worker-2", 1);
  }
  static Options Given(double checkpoint_fails) {
    Options options;
    options.checkpoint_fails = checkpoint_fails;
    return options;
  }
  void End() {
    RunUntil([&] { return Ended("job-1"); }, absl::Minutes(30));
    CHECK(error() == "");
    CHECK(View("job-1").failure.message == "");
    CHECK(View("job-1").state == JobState::kSucceeded);
  }
  size_t Count() { return Complete("job-1").size(); }
  // Counts how often the job entered `phase`.
  int Entered(JobPhase phase) const {
    return static_cast<int>(std::count_if(events().begin(), events().end(), [=](const Event& e) {
      const auto* started = std::get_if<PhaseStarted>(&e);
      return started != nullptr && started->phase == phase;
    }));
  }
};

TEST_CASE("Job checkpoints: in BSP they are taken at exactly the iterations that were asked for",
          "[scheduler][core]") {
  Fixture fixture;
  JobPlan plan = Plan(ConsistencyMode::kBsp);
  plan.checkpoint_iterations = 150;  // The job has 2 * 500 iterations.
  REQUIRE_OK(fixture.Submit(plan));
  fixture.End();
  std::vector<int64_t> iterations;
  for (const CheckpointPublish& checkpoint : fixture.Complete("job-1")) {
    iterations.push_back(checkpoint.at.iteration.value());
  }
  CHECK(iterations == std::vector<int64_t>{150, 300, 450, 600, 750, 900});
  fixture.CheckTrained(plan);
}

TEST_CASE("Job checkpoints: SSP and ASP pause for them, and say what is not trained",
          "[scheduler][core]") {
  const ConsistencyMode mode = GENERATE(ConsistencyMode::kSsp, ConsistencyMode::kAsp);
  Fixture fixture;
  JobPlan plan = Plan(mode);
  plan.checkpoint_interval = absl::Seconds(1);
  REQUIRE_OK(fixture.Submit(plan));
  fixture.End();
  REQUIRE(fixture.Count() >= 3);
  const ResumePoint at = fixture.Complete("job-1")[0].at;
  CHECK(at.epoch == Epoch(0));
  REQUIRE_FALSE(at.untrained.empty());
  int64_t untrained = 0;
  for (const Range& range : at.untrained) untrained += range.size();
  CHECK(untrained + at.batches * plan.batch_size == plan.train_count);
  fixture.CheckTrained(plan);
}

TEST_CASE("Job checkpoints: one on request, in training, in evaluation, and none at the end",
          "[scheduler][core]") {
  const ConsistencyMode mode = GENERATE(ConsistencyMode::kBsp, ConsistencyMode::kAsp);
  Fixture fixture;
  REQUIRE_OK(fixture.Submit(Plan(mode)));
  fixture.RunUntil([&] { return fixture.View("job-1").iteration > 20; }, absl::Minutes(5));
  fixture.AskCheckpoint("job-1");
  REQUIRE(fixture.RunUntil([&] { return fixture.Count() == 1; }, absl::Seconds(10)));
  CHECK(fixture.Complete("job-1")[0].at.epoch == Epoch(0));
  fixture.RunUntil([&] { return fixture.View("job-1").phase == JobPhase::kEvaluating; },
                   absl::Minutes(5));
  fixture.AskCheckpoint("job-1");
  REQUIRE(fixture.RunUntil([&] { return fixture.Count() == 2; }, absl::Seconds(10)));
  CHECK(fixture.Complete("job-1")[1].at.epoch == Epoch(1));
  CHECK(fixture.Complete("job-1")[1].at.results.size() == 1);
  fixture.RunUntil([&] { return fixture.View("job-1").phase == JobPhase::kFinishing; },
                   absl::Minutes(5));
  Actions actions;
  CHECK_STATUS(fixture.core().SaveCheckpoint(Ticket(9999), "job-1", std::nullopt, absl::Seconds(1),
                                             fixture.now(), actions),
               absl::StatusCode::kFailedPrecondition, "trains no more");
  fixture.End();
}

TEST_CASE("Job checkpoints: who asked is answered when it is complete, given up, or late",
          "[scheduler][core]") {
  const double fails = GENERATE(0.0, 1.0);
  Fixture fixture(fails);
  REQUIRE_OK(fixture.Submit(Plan(ConsistencyMode::kBsp)));
  fixture.RunUntil([&] { return fixture.View("job-1").iteration > 20; }, absl::Minutes(5));
  Actions actions;
  REQUIRE_OK(fixture.core().SaveCheckpoint(Ticket(100'000), "job-1", std::nullopt,
                                           absl::ZeroDuration(), fixture.now(), actions));
  REQUIRE(RepliesOf<CheckpointReply>(actions).size() == 1);
  CHECK(RepliesOf<CheckpointReply>(actions)[0].id == CheckpointId(0));
  const CheckpointId asked = RepliesOf<CheckpointReply>(actions)[0].asked;
  CHECK(asked == CheckpointId(1));
  const auto await = [&](CheckpointId id) {
    actions = {};
    return fixture.core().SaveCheckpoint(Ticket(100'001), "job-1", id, absl::ZeroDuration(),
                                         fixture.now(), actions);
  };
  REQUIRE_OK(await(asked));
  REQUIRE(RepliesOf<CheckpointReply>(actions).size() == 1);
  CHECK(RepliesOf<CheckpointReply>(actions)[0].id == CheckpointId(0));
  CHECK_STATUS(await(CheckpointId(5)), absl::StatusCode::kFailedPrecondition, "never asked for");
  fixture.AskCheckpoint("job-1");
  const auto answered = [&] { return !fixture.checkpoint_replies().empty(); };
  fixture.Save("job-1", absl::Minutes(1));
  REQUIRE(fixture.RunUntil(answered, absl::Minutes(1)));
  const CheckpointReply reply = fixture.checkpoint_replies().front();
  if (fails == 0) {
    REQUIRE_OK(reply.status);
    CHECK(reply.folder == "/checkpoints/checkpoint-1");
    REQUIRE_OK(await(asked));  // The client comes back later.
    REQUIRE(RepliesOf<CheckpointReply>(actions).size() == 1);
    CHECK(RepliesOf<CheckpointReply>(actions)[0].id >= asked);
    CHECK(RepliesOf<CheckpointReply>(actions)[0].folder == reply.folder);
  } else {
    CHECK_STATUS(reply.status, absl::StatusCode::kFailedPrecondition, "disk full");
  }
  fixture.End();  // A failed checkpoint does not harm the job.
}

TEST_CASE("Job checkpoints: a job whose shards are lost goes back to its newest checkpoint",
          "[scheduler][core]") {
  const ConsistencyMode mode =
      GENERATE(ConsistencyMode::kBsp, ConsistencyMode::kSsp, ConsistencyMode::kAsp);
  Fixture fixture;
  JobPlan plan = Plan(mode);
  plan.checkpoint_interval = absl::Milliseconds(700);
  REQUIRE_OK(fixture.Submit(plan));
  REQUIRE(fixture.RunUntil([&] { return fixture.Count() == 2; }, absl::Minutes(1)));
  fixture.Run(absl::Milliseconds(300));
  fixture.Kill("server-2");
  fixture.End();
  CHECK(fixture.Entered(JobPhase::kRecovering) == 1);
  CHECK(fixture.View("job-1").results.size() == 2);
  fixture.CheckTrained(plan);
}

TEST_CASE("Job checkpoints: a job goes back to one whose manifest is being written",
          "[scheduler][core]") {
  FakeCluster::Options options = Fixture::Given(0);
  options.publishing_ms = 20'000;
  Fixture fixture(options);
  JobPlan plan = Plan(ConsistencyMode::kAsp);
  plan.checkpoint_interval = absl::Milliseconds(700);
  plan.epochs = 20;
  plan.checkpoints_kept = 1;  // It removes the one before.
  // The job waits for the manifest even when its wait for servers is over.
  plan.server_wait = GENERATE(absl::ZeroDuration(), absl::Minutes(5));
  REQUIRE_OK(fixture.Submit(plan));
  REQUIRE(fixture.RunUntil([&] { return fixture.Count() == 1; }, absl::Minutes(1)));
  REQUIRE(fixture.RunUntil([&] { return fixture.IsPublishing(); }, absl::Minutes(1)));
  fixture.Kill("server-2");
  REQUIRE(fixture.RunUntil([&] { return fixture.Entered(JobPhase::kRecovering) == 1; },
                           absl::Minutes(1)));
  CHECK(fixture.IsPublishing());
  fixture.End();
  const auto back_to_it = [](const Event& event) {
    const auto* back = std::get_if<WentBack>(&event);
    return back != nullptr && back->folder == "/checkpoints/checkpoint-2";
  };
  CHECK(std::any_of(fixture.events().begin(), fixture.events().end(), back_to_it));
  fixture.CheckTrained(plan);
}

TEST_CASE("Job checkpoints: of a damaged one the one before is used, and it is named",
          "[scheduler][core]") {
  Fixture fixture;
  JobPlan plan = Plan(ConsistencyMode::kAsp);
  plan.checkpoint_interval = absl::Milliseconds(700);
  plan.checkpoints_kept = 2;
  REQUIRE_OK(fixture.Submit(plan));
  REQUIRE(fixture.RunUntil([&] { return fixture.Count() == 3; }, absl::Minutes(1)));
  fixture.Damage("/checkpoints/checkpoint-3");
  const bool both = GENERATE(false, true);
  if (both) fixture.Damage("/checkpoints/checkpoint-2");
  fixture.Kill("server-2");
  if (both) {
    REQUIRE(fixture.RunUntil([&] { return fixture.Ended("job-1"); }, absl::Minutes(1)));
    CHECK_THAT(fixture.View("job-1").failure.message, Catch::Contains("checksum"));
    return;
  }
  fixture.End();
  const auto named = [](const Event& event) {
    const auto* ended = std::get_if<CheckpointEnded>(&event);
    return ended != nullptr && ended->folder == "/checkpoints/checkpoint-3" && !ended->why.empty();
  };
  CHECK(std::any_of(fixture.events().begin(), fixture.events().end(), named));
  fixture.CheckTrained(plan);
}

// sim --seed=311048927
TEST_CASE("Job checkpoints: the one before a damaged one waits for a server that is not drained",
          "[scheduler][core]") {
  Fixture fixture;
  JobPlan plan = Plan(ConsistencyMode::kAsp);
  plan.checkpoint_interval = absl::Milliseconds(700);
  plan.checkpoints_kept = 2;
  REQUIRE_OK(fixture.Submit(plan));
  REQUIRE(fixture.RunUntil([&] { return fixture.Count() == 3; }, absl::Minutes(1)));
  fixture.Damage("/checkpoints/checkpoint-3");
  fixture.Kill("server-2");
  fixture.set_network({.lose_reply = 0.5});  // The other server does not know yet what to read.
  REQUIRE(fixture.RunUntil([&] { return fixture.Entered(JobPhase::kRecovering) == 1; },
                           absl::Minutes(1)));
  fixture.Drain("server-1", /*cancel=*/false);
  fixture.set_network({});
  const auto given_up = [&fixture] {
    return std::ranges::any_of(fixture.events(), [](const Event& event) {
      const auto* ended = std::get_if<CheckpointEnded>(&event);
      return ended != nullptr && ended->folder == "/checkpoints/checkpoint-3" &&
             !ended->why.empty();
    });
  };
  REQUIRE_FALSE(given_up());
  REQUIRE(fixture.RunUntil(given_up, absl::Minutes(1)));
  CHECK_THAT(fixture.View("job-1").detail,
             Catch::Contains("waits for a server to restore them on"));
  fixture.AddServer("server-3");
  fixture.End();
  fixture.CheckTrained(plan);
}

TEST_CASE("Job checkpoints: one that finds no memory is kept, and ends the job",
          "[scheduler][core]") {
  Fixture fixture;
  JobPlan plan = Plan(ConsistencyMode::kAsp);
  plan.checkpoint_interval = absl::Milliseconds(700);
  plan.checkpoints_kept = 2;
  REQUIRE_OK(fixture.Submit(plan));
  REQUIRE(fixture.RunUntil([&] { return fixture.Count() == 3; }, absl::Minutes(1)));
  fixture.Damage("/checkpoints/checkpoint-3", FailureReason::kOutOfMemory);
  fixture.Kill("server-2");
  REQUIRE(fixture.RunUntil([&] { return fixture.Ended("job-1"); }, absl::Minutes(1)));
  CHECK(fixture.View("job-1").failure.reason == FailureReason::kOutOfMemory);
  const auto given_up = [](const Event& event) {
    const auto* ended = std::get_if<CheckpointEnded>(&event);
    return ended != nullptr && ended->folder == "/checkpoints/checkpoint-3" && !ended->why.empty();
  };
  CHECK(std::none_of(fixture.events().begin(), fixture.events().end(), given_up));
}

TEST_CASE("Job checkpoints: without one, and without a copy, lost shards end the job",
          "[scheduler][core]") {
  Fixture fixture;
  REQUIRE_OK(fixture.Submit(Plan(ConsistencyMode::kBsp)));
  fixture.RunUntil([&] { return fixture.View("job-1").iteration > 20; }, absl::Minutes(5));
  fixture.Kill("server-2");
  REQUIRE(fixture.RunUntil([&] { return fixture.Ended("job-1"); }, absl::Minutes(1)));
  CHECK(fixture.View("job-1").failure.reason == FailureReason::kServerLost);
}

TEST_CASE("Job snapshots: taken at one moment, answered with where it lies, training goes on",
          "[scheduler][core]") {
  const ConsistencyMode mode = GENERATE(ConsistencyMode::kBsp, ConsistencyMode::kAsp);
  Fixture fixture;
  const JobPlan plan = Plan(mode);
  REQUIRE_OK(fixture.Submit(plan));
  fixture.RunUntil([&] { return fixture.View("job-1").iteration > 20; }, absl::Minutes(5));
  fixture.AskSnapshot("job-1", 11, absl::Seconds(10));
  fixture.AskSnapshot("job-1", 12, absl::Seconds(10));
  REQUIRE(
      fixture.RunUntil([&] { return fixture.snapshot_replies().size() == 2; }, absl::Seconds(10)));
  const SnapshotReply& reply = fixture.snapshot_replies()[0];
  REQUIRE_OK(reply.status);
  CHECK(reply.id == fixture.snapshot_replies()[1].id);  // Both readers get the same snapshot.
  CHECK(reply.iteration > 20);
  REQUIRE(reply.routing != nullptr);
  CHECK(reply.routing->servers.size() == 2);
  fixture.End();
  CHECK(fixture.Count() == 0);  // No checkpoint was written.
  fixture.CheckTrained(plan);
}

// The checkpoint before it rests on another one; the snapshot rests on none.
TEST_CASE("Job snapshots: a scheduler that starts again goes on with the one that is under way",
          "[scheduler][core]") {
  Fixture fixture;
  JobPlan plan = Plan(ConsistencyMode::kBsp);
  plan.tables.push_back({8, true});
  REQUIRE_OK(fixture.Submit(plan));
  fixture.RunUntil([&] { return fixture.View("job-1").iteration > 20; }, absl::Minutes(5));
  for (size_t count : {1, 2}) {
    fixture.AskCheckpoint("job-1");
    REQUIRE(fixture.RunUntil([&] { return fixture.Count() == count; }, absl::Minutes(1)));
  }
  REQUIRE(fixture.Complete("job-1").back().base != CheckpointId(0));
  fixture.AskSnapshot("job-1", 11, absl::Seconds(10));
  REQUIRE(fixture.RunUntil([&] { return fixture.View("job-1").phase == JobPhase::kCheckpointing; },
                           absl::Seconds(10)));
  fixture.KillScheduler(absl::Seconds(1), FakeCluster::Death::kBetweenSteps);
  fixture.AwaitScheduler();
  fixture.End();
  fixture.CheckTrained(plan);
}

TEST_CASE("Job snapshots: a server that cannot keep it, a limit and a job's end are told",
          "[scheduler][core]") {
  FakeCluster::Options options;
  options.snapshot_fails = 1;
  Fixture fixture(options);
  REQUIRE_OK(fixture.Submit(Plan(ConsistencyMode::kBsp)));
  fixture.RunUntil([&] { return fixture.View("job-1").iteration > 20; }, absl::Minutes(5));
  fixture.AskSnapshot("job-1", 11, absl::Seconds(10));
  REQUIRE(
      fixture.RunUntil([&] { return fixture.snapshot_replies().size() == 1; }, absl::Seconds(10)));
  CHECK_STATUS(fixture.snapshot_replies()[0].status, absl::StatusCode::kFailedPrecondition,
               "no snapshot of job-1: server-1: no room");
  Actions actions;
  REQUIRE_OK(fixture.core().OpenSnapshot(Ticket(100'000), "job-1", 12, absl::ZeroDuration(),
                                         fixture.now(), actions));
  REQUIRE(RepliesOf<SnapshotReply>(actions).size() == 1);
  CHECK(RepliesOf<SnapshotReply>(actions)[0].id == CheckpointId(0));
  CHECK(RepliesOf<SnapshotReply>(actions)[0].routing == nullptr);
  fixture.RunUntil([&] { return fixture.View("job-1").phase == JobPhase::kFinishing; },
                   absl::Minutes(5));
  CHECK_STATUS(fixture.core().OpenSnapshot(Ticket(9999), "job-1", 13, absl::Seconds(1),
                                           fixture.now(), actions),
               absl::StatusCode::kFailedPrecondition, "trains no more");
  fixture.End();
}

TEST_CASE("Saved stops: the job takes a checkpoint, writes its model, and is stopped",
          "[scheduler][core]") {
  const ConsistencyMode mode =
      GENERATE(ConsistencyMode::kBsp, ConsistencyMode::kSsp, ConsistencyMode::kAsp);
  Fixture fixture;
  REQUIRE_OK(fixture.Submit(Plan(mode)));
  fixture.RunUntil([&] { return fixture.View("job-1").iteration > 20; }, absl::Minutes(5));
  REQUIRE_OK_AND_ASSIGN(const CheckpointId asked, fixture.SaveAndStop("job-1"));
  CHECK(fixture.SaveAndStop("job-1").value() == asked);  // Its answer was lost.
  REQUIRE(fixture.RunUntil([&] { return fixture.Ended("job-1"); }, absl::Minutes(1)));
  const JobView view = fixture.View("job-1");
  CHECK(view.state == JobState::kStopped);
  CHECK(view.has_model);
  CHECK(view.saved_folder == "/checkpoints/checkpoint-1");
  CHECK(fixture.Entered(JobPhase::kEvaluating) == 0);
  REQUIRE(fixture.Count() == 1);
  const ResumePoint& at = fixture.Complete("job-1")[0].at;
  CHECK(at.epoch == Epoch(0));
  CHECK(view.iteration == at.iteration.value());  // Nothing was trained after it.
  CHECK(view.samples_done < view.samples_total / 2);
  CHECK(fixture.SaveAndStop("job-1").value() == asked);
  CHECK(fixture.error() == "");
}

TEST_CASE("Saved stops: if the checkpoint is given up the job goes on, also past later ones",
          "[scheduler][core]") {
  Fixture fixture(/*checkpoint_fails=*/1);
  JobPlan plan = Plan(ConsistencyMode::kBsp);
  plan.checkpoint_iterations = 200;
  REQUIRE_OK(fixture.Submit(plan));
  fixture.RunUntil([&] { return fixture.View("job-1").iteration > 20; }, absl::Minutes(5));
  REQUIRE_OK(fixture.SaveAndStop("job-1").status());
  REQUIRE(
      fixture.RunUntil([&] { return fixture.View("job-1").iteration > 210; }, absl::Minutes(5)));
  CHECK(fixture.View("job-1").saved_folder == "");
  Actions actions;
  const auto reason = [&](CheckpointId asked) {
    return fixture.core().SaveCheckpoint(Ticket(100'000), "job-1", asked, absl::Seconds(1),
                                         fixture.now(), actions);
  };
  CHECK_STATUS(reason(CheckpointId(1)), absl::StatusCode::kFailedPrecondition,
               "of job-1 was given up: server-");
  fixture.End();
  fixture.CheckTrained(plan);
}

TEST_CASE("Saved stops: a job whose shards are lost once it is saved trains nothing again",
          "[scheduler][core]") {
  const ConsistencyMode mode = GENERATE(ConsistencyMode::kBsp, ConsistencyMode::kAsp);
  Fixture fixture;
  REQUIRE_OK(fixture.Submit(Plan(mode)));
  fixture.RunUntil([&] { return fixture.View("job-1").iteration > 20; }, absl::Minutes(5));
  REQUIRE_OK(fixture.SaveAndStop("job-1").status());
  REQUIRE(fixture.RunUntil([&] { return fixture.Entered(JobPhase::kExporting) == 1; },
                           absl::Minutes(1)));
  fixture.Kill("server-2");
  REQUIRE(fixture.RunUntil([&] { return fixture.Ended("job-1"); }, absl::Minutes(2)));
  const JobView view = fixture.View("job-1");
  CHECK(view.state == JobState::kStopped);
  CHECK(view.has_model);
  CHECK(view.iteration == fixture.Complete("job-1")[0].at.iteration.value());
  CHECK(fixture.error() == "");
}

TEST_CASE("Saved stops: a job that has trained all, or trains no more, ends as always",
          "[scheduler][core]") {
  Fixture fixture;
  const JobPlan plan = Plan(ConsistencyMode::kAsp);
  REQUIRE_OK(fixture.Submit(plan));
  fixture.RunUntil(
      [&] {
        const JobView view = fixture.View("job-1");
        return view.phase == JobPhase::kEvaluating && view.epoch == Epoch(1);
      },
      absl::Minutes(5));
  REQUIRE_OK(fixture.SaveAndStop("job-1").status());
  fixture.RunUntil([&] { return fixture.View("job-1").phase == JobPhase::kFinishing; },
                   absl::Minutes(5));
  CHECK_STATUS(fixture.SaveAndStop("job-1"), absl::StatusCode::kFailedPrecondition,
               "trains no more");
  fixture.End();
  CHECK(fixture.Count() == 1);
  CHECK_STATUS(fixture.SaveAndStop("job-9"), absl::StatusCode::kNotFound, "job-9");
}

TEST_CASE("Job checkpoints: from the one behind the last epoch more epochs are trained, whole",
          "[scheduler][core]") {
  const ConsistencyMode mode =
      GENERATE(ConsistencyMode::kBsp, ConsistencyMode::kSsp, ConsistencyMode::kAsp);
  Fixture fixture;
  REQUIRE_OK(fixture.Submit(Plan(mode)));
  fixture.RunUntil(
      [&] {
        const JobView view = fixture.View("job-1");
        return view.phase == JobPhase::kEvaluating && view.epoch == Epoch(1);
      },
      absl::Minutes(5));
  fixture.AskCheckpoint("job-1");
  fixture.End();
  REQUIRE(fixture.Count() == 1);
  const CheckpointPublish& saved = fixture.Complete("job-1")[0];
  REQUIRE(saved.at.epoch == Epoch(2));
  JobPlan plan = Plan(mode);
  plan.id = "job-2";
  plan.epochs = 3;
  plan.checkpoint_folder = "/more";
  RestoreFrom from{saved.folder, saved.at};
  for (const CheckpointPart& part : saved.parts) from.shards.push_back({part.shard, part.elements});
  REQUIRE_OK(fixture.Submit(plan, from));
  REQUIRE(fixture.RunUntil([&] { return fixture.Ended("job-2"); }, absl::Minutes(30)));
  const JobView view = fixture.View("job-2");
  CHECK(view.state == JobState::kSucceeded);
  CHECK(view.results.size() == 3);
  int64_t trained = 0;
  for (const TaskView& task : view.tasks) trained += task.samples;
  CHECK(trained == plan.train_count);
  CHECK(fixture.error() == "");
}

}  // namespace
}  // namespace capstan::scheduler::job_checkpoint_test
