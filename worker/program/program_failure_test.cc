// Tests of how a program and its task fail: values that are not finite, and Fail.
#include <catch2/catch.hpp>
#include <cstdint>
#include <limits>
#include <set>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "common/testing/status_matchers.h"
#include "worker/program/program_computation.h"
#include "worker/program/testing/training_task.h"

namespace capstan::worker::program_failure_test {
namespace {

TEST_CASE("ProgramComputation: a value that is not finite fails the task unless it is replaced") {
  constexpr float kInfinite = std::numeric_limits<float>::infinity();
  constexpr char kText[] = "the gradient of \"b\" has inf";
  ProgramComputation computation(Job());
  TrainingTask task(&computation, TrainingWork(0, 4, 4));
  REQUIRE_OK(computation.Next(absl::InfiniteDuration()).status());
  CHECK_STATUS(computation.PutGradient(0, 1, {1.0f, kInfinite}), absl::StatusCode::kOutOfRange,
               kText);
  CHECK_STATUS(computation.Release(1), absl::StatusCode::kOutOfRange, kText);
  SECTION("finished all the same") {
    CHECK_STATUS(computation.Finish(0, 4), absl::StatusCode::kOutOfRange, kText);
    task.Join();
    CHECK_STATUS(task.result.status(), absl::StatusCode::kOutOfRange, kText);
    CHECK(task.released.empty());
  }
  SECTION("replaced in two parts") {
    REQUIRE_OK(computation.PutGradient(0, 2, {3.0f}));
    REQUIRE_OK(computation.Release(2));
    REQUIRE_OK(computation.PutGradient(0, 1, {2.0f}));
    REQUIRE_OK(computation.Finish(0, 4));
    task.Join();
    REQUIRE_OK(task.result.status());
    CHECK(task.gradient.floats[0] == std::vector<float>{0, 2, 3});
  }
  SECTION("the loss is told, too") {
    REQUIRE_OK(computation.PutGradient(0, 2, {3.0f}));
    CHECK_STATUS(computation.Finish(kInfinite, 4), absl::StatusCode::kOutOfRange,
                 "the loss is inf");
    task.Join();
    CHECK_STATUS(task.result.status(), absl::StatusCode::kOutOfRange, "the loss is inf");
  }
}

TEST_CASE("ProgramComputation: the program's error ends the task, and the task's end the program") {
  ProgramComputation computation(Job());
  {
    TrainingTask task(&computation, TrainingWork(0, 4, 4));
    REQUIRE_OK(computation.Next(absl::InfiniteDuration()).status());
    computation.Fail(absl::InvalidArgumentError("ValueError: x"));
    task.Join();
    CHECK_STATUS(task.result.status(), absl::StatusCode::kInvalidArgument, "ValueError: x");
    REQUIRE_OK(computation.idle_failure());
  }
  computation.Fail(absl::InvalidArgumentError("it has left"));
  REQUIRE_OK(computation.idle_failure());
  computation.End();
  CHECK_STATUS(computation.Next(absl::InfiniteDuration()).status(), absl::StatusCode::kOutOfRange,
               "the task has ended");
}

TEST_CASE("ProgramComputation: a task that fails waits for the call that uses what it lent") {
  ProgramComputation computation(Job());
  absl::Notification entered, failed, returned;
  TableArrays parameters;
  GradientArrays gradient;
  const Work work = TrainingWork(0, 4, 4);
  REQUIRE_OK(computation.BeginPull(work, {}, &parameters).status());
  computation.BeginTraining(work, &parameters, &gradient);
  bool returned_meanwhile = false;
  std::thread task([&] {
    const auto ready = [&](int64_t) {
      entered.Notify();
      failed.WaitForNotification();
      returned_meanwhile = returned.WaitForNotificationWithTimeout(absl::Milliseconds(100));
    };
    computation.Train(work, &gradient, ready).status().IgnoreError();
    returned.Notify();
  });
  absl::Span<const int64_t> samples;
  std::thread program([&] {
    samples = computation.Next(absl::InfiniteDuration()).value()->samples;
    computation.Release(0).IgnoreError();
  });
  entered.WaitForNotification();
  computation.Fail(absl::InvalidArgumentError("ValueError: x"));
  failed.Notify();
  program.join();
  task.join();
  CHECK_FALSE(returned_meanwhile);
  CHECK(samples.size() == 4);
  CHECK(std::set<int64_t>(samples.begin(), samples.end()).size() == 4);  // They are still there.
}

TEST_CASE("ProgramComputation: an error between two works is known, because no work returns it") {
  ProgramComputation computation(Job());
  computation.Fail(absl::InvalidArgumentError("it has left"));
  CHECK_STATUS(computation.idle_failure(), absl::StatusCode::kInvalidArgument, "it has left");
}

}  // namespace
}  // namespace capstan::worker::program_failure_test
