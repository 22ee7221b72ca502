// Tests the decisions by the epochs' figures: the best model, early stopping, the learning rate.
#include <algorithm>
#include <catch2/catch.hpp>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "common/metrics/evaluation.h"
#include "common/testing/status_matchers.h"
#include "common/types/ids.h"
#include "scheduler/core/testing/fake_cluster.h"
#include "scheduler/core/testing/job_fixture.h"

namespace capstan::scheduler::job_best_test {
namespace {

using testing::FakeCluster;
using testing::JobFixture;

struct Fixture : FakeCluster {
  Fixture(ConsistencyMode mode, std::vector<double> losses, double checkpoint_fails = 0,
          uint64_t seed = 1)
      : FakeCluster(Given(std::move(losses), checkpoint_fails, seed)) {
    AddServer("server-1");
    AddServer("server-2");
    AddWorker("worker-1", 1);
    AddWorker("worker-2", 1);
    plan.id = "job-1";
    plan.consistency.mode = mode;
    plan.workers = 2;
    plan.epochs = 4;
    plan.batch_size = 10;
    plan.consistency.slots = 4;
    plan.train_count = 4'000;
    plan.validation_count = 60;
    plan.test_count = 100;
    plan.tables = {300'000};
    plan.export_path = "/out";
    plan.checkpoint_folder = "/checkpoints";
    plan.decide = {.on_validation = true, .keep_best = true};
  }
  static Options Given(std::vector<double> losses, double checkpoint_fails, uint64_t seed) {
    Options options;
    options.seed = seed;
    options.checkpoint_fails = checkpoint_fails;
    options.losses = std::move(losses);
    return options;
  }
  void Submit() { REQUIRE_OK(FakeCluster::Submit(plan)); }
  JobView Now() { return View("job-1"); }
  void End() {
    RunUntil([&] { return Ended("job-1"); }, absl::Minutes(30));
    CHECK(error() == "");
    CHECK(Now().failure.message == "");
    CHECK(Now().state == JobState::kSucceeded);
    CHECK(Now().samples_done == Now().samples_total);
  }
  template <typename T>
  std::vector<T> Seen() const {
    std::vector<T> seen;
    for (const Event& event : events()) {
      if (const T* one = std::get_if<T>(&event)) seen.push_back(*one);
    }
    return seen;
  }
  bool WasTested(size_t epoch) { return Now().results.at(epoch).test_samples == 100; }

  JobPlan plan;
};

TEST_CASE("Best epoch: its model is restored, tested and exported", "[scheduler][core]") {
  const ConsistencyMode mode =
      GENERATE(ConsistencyMode::kBsp, ConsistencyMode::kSsp, ConsistencyMode::kAsp);
  Fixture fixture(mode, {0.5, 0.3, 0.4, 0.6});
  fixture.Submit();
  fixture.End();
  const JobView view = fixture.Now();
  REQUIRE(view.results.size() == 4);
  CHECK(view.best_epoch == Epoch(1));
  CHECK_THAT(view.detail, Catch::Contains("trained 4 of 4 epochs") &&
                              Catch::Contains("the model is that of epoch 2"));
  for (size_t i = 0; i < 4; ++i) {
    REQUIRE(view.results[i].validation.has_value());
    CHECK(view.results[i].validation->samples == 60);
    CHECK(fixture.WasTested(i) == (i == 1));
  }
  const std::vector<WentBack> back = fixture.Seen<WentBack>();
  REQUIRE(back.size() == 1);
  CHECK(back[0].best == Epoch(1));
  CHECK(back[0].folder == "/checkpoints/checkpoint-2");
  CHECK(fixture.Complete("job-1").size() == 2);  // One for each epoch that was the best so far.
  const std::vector<ModelTested> tested = fixture.Seen<ModelTested>();
  REQUIRE(tested.size() == 1);
  CHECK(tested[0].result.epoch == Epoch(1));
}

TEST_CASE("Best epoch: if it is the last one nothing is restored", "[scheduler][core]") {
  Fixture fixture(ConsistencyMode::kBsp, {0.5, 0.4, 0.3, 0.2});
  fixture.Submit();
  fixture.End();
  CHECK(fixture.Now().best_epoch == Epoch(3));
  CHECK(fixture.Seen<WentBack>().empty());
  CHECK(fixture.Complete("job-1").size() == 3);
  CHECK(fixture.WasTested(3));
}

TEST_CASE("Best epoch: its checkpoint stays, however many newer ones there are",
          "[scheduler][core]") {
  Fixture fixture(ConsistencyMode::kBsp, {0.1, 0.3, 0.4, 0.6});
  fixture.plan.checkpoint_iterations = 20;
  fixture.plan.checkpoints_kept = 1;
  fixture.Submit();
  fixture.End();
  const std::vector<WentBack> back = fixture.Seen<WentBack>();
  REQUIRE(back.size() == 1);
  CHECK(back[0].best == Epoch(0));
  CHECK(fixture.Complete("job-1").size() > 4);
}

TEST_CASE("Early stopping: the epochs that are left are not trained", "[scheduler][core]") {
  const bool keep_best = GENERATE(false, true);
  Fixture fixture(ConsistencyMode::kAsp, {0.5, 0.3, 0.4, 0.6});
  fixture.plan.epochs = 100;
  fixture.plan.decide.keep_best = keep_best;
  fixture.plan.decide.stop_patience = 2;
  fixture.Submit();
  fixture.End();
  CHECK(fixture.Now().results.size() == 4);
  CHECK(fixture.WasTested(keep_best ? 1 : 3));
  CHECK(fixture.Now().best_epoch.has_value() == keep_best);
}

TEST_CASE("Early stopping: without a validation split the test split decides",
          "[scheduler][core]") {
  Fixture fixture(ConsistencyMode::kBsp, {0.5, 0.3, 0.4, 0.6});
  fixture.plan.epochs = 100;
  fixture.plan.validation_count = 0;
  fixture.plan.decide = {.keep_best = true, .stop_patience = 1};
  fixture.Submit();
  fixture.End();
  CHECK(fixture.Now().results.size() == 3);
  CHECK(fixture.Now().best_epoch == Epoch(1));
  for (size_t i = 0; i < 3; ++i) CHECK(fixture.WasTested(i));
  CHECK(fixture.Seen<ModelTested>().empty());
}

TEST_CASE("Best epoch: a checkpoint of it that fails is taken again", "[scheduler][core]") {
  int failed = 0;
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    Fixture fixture(ConsistencyMode::kBsp, {0.5, 0.3, 0.4, 0.6}, /*checkpoint_fails=*/0.15, seed);
    fixture.Submit();
    fixture.End();
    CHECK(fixture.Now().best_epoch == Epoch(1));
    for (const CheckpointEnded& ended : fixture.Seen<CheckpointEnded>()) {
      failed += ended.why.empty() ? 0 : 1;
    }
  }
  CHECK(failed > 0);
}

TEST_CASE(
    "Best epoch: where none of its checkpoints can be written the job goes on, and exports "
    "the last",
    "[scheduler][core]") {
  Fixture fixture(ConsistencyMode::kBsp, {0.3, 0.5, 0.4, 0.6}, /*checkpoint_fails=*/1);
  fixture.Submit();
  fixture.RunUntil([&] { return fixture.Now().phase == JobPhase::kExporting; }, absl::Minutes(30));
  CHECK(fixture.Now().results.size() == 4);
  CHECK(fixture.Seen<WentBack>().empty());
  CHECK(fixture.Seen<CheckpointEnded>().size() == 6);
}

TEST_CASE("Best epoch: it is exported whatever dies, and whenever", "[scheduler][core]") {
  const int moment = GENERATE(0, 1, 2, 3, 4, 5);
  CAPTURE(moment);
  Fixture fixture(ConsistencyMode::kBsp, {0.5, 0.3, 0.4, 0.6});
  fixture.plan.log = GENERATE(false, true);  // The job first waits for the dead server's log.
  fixture.plan.decide.stop_patience = 2;
  fixture.plan.epochs = 9;
  fixture.Submit();
  const auto until = [&](JobPhase phase, size_t results) {
    REQUIRE(fixture.RunUntil(
        [&] { return fixture.Now().phase == phase && fixture.Now().results.size() == results; },
        absl::Minutes(5)));
  };
  switch (moment) {
    case 0:  // While the best model is saved.
      until(JobPhase::kCheckpointing, 2);
      fixture.Kill("server-2");
      break;
    case 1:
      until(JobPhase::kTraining, 2);
      fixture.Kill("server-1");
      break;
    case 2:  // While the job goes back to it.
      REQUIRE(
          fixture.RunUntil([&] { return !fixture.Seen<WentBack>().empty(); }, absl::Minutes(5)));
      fixture.Kill("server-2");
      break;
    case 3:  // While the best model is tested.
      until(JobPhase::kEvaluating, 4);
      fixture.Kill("server-2");
      break;
    case 4:
      until(JobPhase::kCheckpointing, 2);
      fixture.KillScheduler(absl::Seconds(1), FakeCluster::Death::kBetweenSteps);
      break;
    case 5:
      REQUIRE(
          fixture.RunUntil([&] { return !fixture.Seen<WentBack>().empty(); }, absl::Minutes(5)));
      fixture.KillScheduler(absl::Seconds(1), FakeCluster::Death::kInStep);
      break;
  }
  fixture.Run(absl::Milliseconds(1500));
  if (moment <= 3) {
    fixture.AddServer("server-3");
    fixture.AddServer("server-4");
  }
  fixture.End();
  CHECK(fixture.Now().best_epoch == Epoch(1));
  CHECK(fixture.Now().results.size() == 4);
  CHECK(fixture.WasTested(1));
}

TEST_CASE("Learning rate: it is reduced between epochs", "[scheduler][core]") {
  Fixture fixture(ConsistencyMode::kBsp, {0.5, 0.5, 0.5, 0.4});
  fixture.plan.decide = {.on_validation = true, .plateau_patience = 1, .plateau_factor = 0.5};
  fixture.Submit();
  fixture.End();
  std::vector<double> factors;
  for (const EpochResult& result : fixture.Now().results) {
    factors.push_back(result.learning_rate_factor);
  }
  CHECK(factors == std::vector<double>{1, 1, 0.5, 0.25});
}

TEST_CASE("Learning rate: no work of an epoch is leased before every server has its rate",
          "[scheduler][core]") {
  const ConsistencyMode mode = GENERATE(ConsistencyMode::kBsp, ConsistencyMode::kAsp);
  // A metric that is always missing never improves.
  const DecisionPlan decide{
      .metric = DecisionPlan::Metric::kMae, .plateau_patience = 1, .plateau_factor = 0.5};
  JobFixture job(mode, 2, /*test_count=*/20, Objective::kClasses, std::nullopt, /*log=*/false,
                 decide);
  job.Start();
  CHECK(job.run->parts().members.membership().learning_rate_factor == 1);
  while (job.View().results.empty()) {
    for (int rank = 0; rank < 2; ++rank) job.Finish(rank);
  }
  CHECK(job.phase() == JobPhase::kTraining);
  CHECK(job.run->parts().members.membership().learning_rate_factor == 0.5);
  const auto has_work = [&] { return !job.Of(0).slots.empty() || !job.Of(0).samples.empty(); };
  CHECK_FALSE(has_work());
  job.Apply("server-1");
  job.Apply("server-1");
  CHECK_FALSE(has_work());
  for (int i = 0; i < 3; ++i) {
    job.Apply("server-2");
    job.Apply("server-1");
  }
  CHECK(has_work());
  CHECK(job.run->parts().members.membership().learning_rate_factor == 0.5);
}

}  // namespace
}  // namespace capstan::scheduler::job_best_test
