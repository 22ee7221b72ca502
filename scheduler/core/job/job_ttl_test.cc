// Tests the training time that a job tells its servers where rows have a time to live.
#include <catch2/catch.hpp>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "common/testing/status_matchers.h"
#include "scheduler/core/testing/fake_cluster.h"
#include "scheduler/core/testing/job_fixture.h"
#include "scheduler/store/archive.h"

namespace capstan::scheduler::job_ttl_test {
namespace {

using testing::FakeCluster;
using testing::JobFixture;

struct Fixture : JobFixture {
  // A tick is a 64th of `ttl_seconds`.
  explicit Fixture(int64_t ttl_seconds, std::optional<RestoreFrom> restore = std::nullopt)
      : JobFixture(ConsistencyMode::kAsp, 2, 0, Objective::kClasses, std::move(restore),
                   /*log=*/false, {}, /*own_pace=*/false, ttl_seconds) {}
  void Train(absl::Duration time) {
    Advance(time);
    ApplyAll();
  }
  int64_t clock() const { return run->parts().members.membership().clock_seconds; }
  Generation membership() const { return run->parts().members.membership().generation; }
  Instant NextTick() const { return run->parts().training_time.NextTick(); }
};

RestoreFrom Checkpoint(absl::Duration trained) {
  RestoreFrom from{.folder = "/old/checkpoint-4", .at = {}};
  from.at.untrained = {{0, 80}};
  from.at.trained = trained;
  return from;
}

TEST_CASE("Time to live: servers are told in whole ticks how long the job has trained",
          "[scheduler][core]") {
  Fixture job(64);
  job.Advance(absl::Seconds(30));  // It does not train yet.
  job.Start();
  const Generation before = job.membership();
  CHECK(job.NextTick() == job.now + absl::Seconds(1));
  CHECK(job.run->NextDeadline() <= job.NextTick());
  job.Advance(absl::Milliseconds(999));
  CHECK(job.clock() == 0);
  CHECK(job.membership() == before);
  job.Advance(absl::Milliseconds(1));
  CHECK(job.clock() == 1);
  CHECK(job.membership() == before.Next());
  // A server that is slow to apply it is not told again, which would excuse it.
  job.Advance(absl::Milliseconds(2500));
  CHECK(job.clock() == 1);
  for (const int rank : {0, 1}) job.Hello(rank);  // Their leases begin anew.
  CHECK(job.run->NextDeadline() > job.NextTick());
  job.ApplyAll();
  CHECK(job.clock() == 3);
  CHECK(job.membership() == before.Next().Next());
  CHECK(job.NextTick() == job.now + absl::Milliseconds(500));
}

TEST_CASE("Time to live: a tick that is no whole number of seconds does not drift",
          "[scheduler][core]") {
  Fixture job(100);  // A tick is 1.5625 s.
  job.Start();
  job.Train(absl::Seconds(3));
  CHECK(job.clock() == 1);
  job.Train(absl::Seconds(47));
  CHECK(job.clock() == 50);
}

TEST_CASE("Time to live: a job without one has no ticks", "[scheduler][core]") {
  Fixture job(0);
  job.Start();
  const Generation before = job.membership();
  job.Train(absl::Minutes(4));
  CHECK(job.clock() == 0);
  CHECK(job.membership() == before);
  CHECK(job.NextTick() == Instant::InfiniteFuture());
}

TEST_CASE("Time to live: a pause for a checkpoint does not count", "[scheduler][core]") {
  Fixture job(640);
  job.Start();
  job.Train(absl::Seconds(4));
  REQUIRE_OK(job.run->AskCheckpoint(JobRun::AndThen::kTrainOn, job.now, job.events).status());
  CHECK(job.NextTick() == Instant::InfiniteFuture());
  job.Train(absl::Seconds(40));
  CHECK(job.clock() == 0);
}

TEST_CASE("Time to live: the next scheduler counts on, but not the time between",
          "[scheduler][core]") {
  Fixture job(640);
  job.Start();
  job.Train(absl::Seconds(15));
  REQUIRE(job.clock() == 10);
  const auto at = [&] { return Moment{job.now, absl::UnixEpoch() + job.now.SinceOrigin()}; };
  const std::string stored = EncodeState(at(), [&](auto& archive) { archive(*job.run); });
  job.now = job.now + absl::Minutes(20);
  auto next =
      std::make_unique<JobRun>(job.plan, job.run->parts().routing, JobRun::Options{}, job.now);
  REQUIRE_OK(DecodeState(stored, at(), [&](auto& archive) {
    archive(*next);
    return absl::OkStatus();
  }));
  job.run = std::move(next);
  job.run->Restored(job.now, absl::Seconds(10));
  job.ApplyAll();
  CHECK(job.clock() == 10);
  job.Train(absl::Seconds(4));
  CHECK(job.clock() == 10);
  job.Train(absl::Seconds(1));
  CHECK(job.clock() == 20);
}

TEST_CASE(
    "Time to live: a job that begins with a checkpoint, or goes back to it, counts from there",
    "[scheduler][core]") {
  Fixture job(640, Checkpoint(absl::Seconds(25)));
  CHECK(job.clock() == 20);
  job.Start();
  REQUIRE(job.phase() == JobPhase::kTraining);
  job.Train(absl::Seconds(20));
  CHECK(job.clock() == 40);
  job.Died("server-1");
  REQUIRE(job.Seen<WentBack>().size() == 1);
  CHECK(job.clock() == 20);
}

TEST_CASE("Time to live: checkpoints say how long the job has trained, whichever scheduler runs",
          "[scheduler][core]") {
  FakeCluster cluster{FakeCluster::Options()};
  cluster.AddServer("server-1");
  cluster.AddWorker("worker-1", 2);
  JobPlan plan = testing::Plan("job-1", 2, GENERATE(ConsistencyMode::kBsp, ConsistencyMode::kAsp));
  plan.train_count = 100'000;
  plan.checkpoint_interval = absl::Seconds(3);
  plan.checkpoint_folder = "/checkpoints";
  plan.ttl_seconds = 60;
  const Instant begun = cluster.now();
  REQUIRE_OK(cluster.Submit(plan));
  const auto taken = [&](size_t count) {
    return cluster.RunUntil([&] { return cluster.Complete("job-1").size() >= count; },
                            absl::Minutes(1));
  };
  REQUIRE(taken(2));
  cluster.KillScheduler(absl::Seconds(1), FakeCluster::Death::kInStep);
  REQUIRE(taken(4));
  CHECK(cluster.error() == "");
  absl::Duration before = absl::Seconds(1);
  for (const CheckpointPublish& checkpoint : cluster.Complete("job-1")) {
    CHECK(checkpoint.at.trained > before);
    before = checkpoint.at.trained;
  }
  CHECK(before < cluster.now() - begun);
}

// As SchedulerCore::Tick does while it is isolated. What is left of a tick does not pass then, and
// may be very short.
TEST_CASE("Time to live: a scheduler that hears nobody does not wake up for the next tick",
          "[scheduler][core]") {
  Fixture job(64);
  job.Start();
  job.Advance(absl::Seconds(1) - absl::Nanoseconds(1));
  REQUIRE(job.NextTick() == job.now + absl::Nanoseconds(1));
  for (int i = 0; i < 3; ++i) {
    job.now = job.now + absl::Milliseconds(500);
    job.run->RestartLimits(job.now, absl::Seconds(10));
    job.run->Tick(job.now, job.events);
    CHECK(job.run->NextDeadline() > job.now + absl::Seconds(1));
  }
  job.Advance(absl::Milliseconds(500));  // It hears somebody.
  CHECK(job.NextTick() == job.now + absl::Nanoseconds(1));
  CHECK(job.clock() == 0);
  job.Advance(absl::Nanoseconds(1));
  CHECK(job.clock() == 1);
}

}  // namespace
}  // namespace capstan::scheduler::job_ttl_test
