#include "worker/program/program_computation.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <thread>
#include <vector>

#include "common/testing/status_matchers.h"
#include "worker/program/testing/training_task.h"

namespace capstan::worker::program_computation_test {
namespace {

TEST_CASE("ProgramComputation: a work goes to the program and its gradient back") {
  ProgramComputation computation(Job());
  TrainingTask task(&computation, TrainingWork(4, 6, 4));
  const auto work = computation.Next(absl::InfiniteDuration());
  REQUIRE_OK(work.status());
  REQUIRE(work->has_value());
  CHECK((*work)->iteration == 3);
  CHECK((*work)->slot == 1);
  CHECK((*work)->samples.size() == 2);
  const auto parameters = computation.Parameters(0);
  REQUIRE_OK(parameters.status());
  CHECK((*parameters)[2] == 3);
  REQUIRE_OK(computation.PutGradient(0, 1, {4.0f, 8.0f}));
  REQUIRE_OK(computation.Release(1));
  REQUIRE_OK(computation.PutGradient(1, 0, {2.0f, 6.0f}));
  REQUIRE_OK(computation.Finish(5.0, 1));
  task.Join();
  REQUIRE_OK(task.result.status());
  CHECK(task.result->samples == 2);
  CHECK(task.result->loss_sum == 5.0);
  CHECK(task.result->correct == 1);
  // Two of the iteration's four samples: half of the mean counts.
  CHECK(task.gradient.floats[0] == std::vector<float>{0, 2, 4});
  CHECK(task.gradient.floats[1] == std::vector<float>{1, 3});
  CHECK(task.released == std::vector<int64_t>{1});
}

TEST_CASE("ProgramComputation: each sample of an epoch comes once") {
  ProgramComputation computation(Job());
  std::vector<int64_t> seen;
  for (int64_t begin = 0; begin < 10; begin += 5) {
    TrainingTask task(&computation, TrainingWork(begin, begin + 5, 5));
    const auto work = computation.Next(absl::InfiniteDuration());
    REQUIRE_OK(work.status());
    seen.insert(seen.end(), (*work)->samples.begin(), (*work)->samples.end());
    REQUIRE_OK(computation.Finish(0.0, 0));
  }
  std::sort(seen.begin(), seen.end());
  CHECK(seen == std::vector<int64_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
}

TEST_CASE("ProgramComputation: a slot beyond the data needs no program") {
  ProgramComputation computation(Job());
  TrainingTask task(&computation, TrainingWork(0, 0, 4));
  task.Join();
  REQUIRE_OK(task.result.status());
  CHECK(task.result->samples == 0);
  CHECK(task.gradient.floats[0] == std::vector<float>{0, 0, 0});
}

TEST_CASE("ProgramComputation: wrong calls are refused and change nothing") {
  ProgramComputation computation(Job());
  CHECK_STATUS(computation.Finish(0, 0), absl::StatusCode::kFailedPrecondition,
               "there is no work: Next has to come first");
  const auto none = computation.Next(absl::ZeroDuration());
  REQUIRE_OK(none.status());
  CHECK_FALSE(none->has_value());
  TrainingTask task(&computation, TrainingWork(0, 4, 4));
  REQUIRE_OK(computation.Next(absl::InfiniteDuration()).status());
  CHECK_STATUS(computation.Next(absl::ZeroDuration()).status(),
               absl::StatusCode::kFailedPrecondition, "the last work is not finished");
  CHECK_STATUS(computation.PutGradient(0, 2, {1.0f, 2.0f}), absl::StatusCode::kInvalidArgument,
               "elements [2, 4) of table 0, which has 3");
  CHECK_STATUS(computation.PutGradient(2, 0, {}), absl::StatusCode::kInvalidArgument,
               "elements [0, 0) of table 2, which has 0");
  CHECK_STATUS(computation.Finish(0, 5), absl::StatusCode::kInvalidArgument,
               "correct is 5, expected 0 to 4");
  REQUIRE_OK(computation.Finish(0, 4));
}

Work EvaluationWork(int64_t begin, int64_t end) {
  Work work;
  work.kind = Work::Kind::kEvaluate;
  work.epoch = Epoch(1);
  work.positions = {begin, end};
  return work;
}

TEST_CASE("ProgramComputation: an evaluation has a loss and no gradient") {
  ProgramComputation computation(Job());
  TableArrays parameters;
  const Work work = EvaluationWork(3, 5);
  REQUIRE_OK(computation.BeginPull(work, {work, EvaluationWork(5, 6)}, &parameters).status());
  parameters[0] = {1, 2, 3};
  absl::StatusOr<WorkResult> result;
  std::thread task([&] { result = computation.Evaluate(work, parameters); });
  const auto asked = computation.Next(absl::InfiniteDuration());
  REQUIRE_OK(asked.status());
  CHECK((*asked)->kind == ProgramWork::Kind::kEvaluate);
  CHECK((*asked)->epoch == 1);
  CHECK((*asked)->samples == absl::MakeConstSpan({int64_t{3}, int64_t{4}}));
  REQUIRE(computation.Upcoming().size() == 1);
  CHECK(computation.Upcoming()[0].kind == ProgramWork::Kind::kEvaluate);
  CHECK(computation.Upcoming()[0].samples == absl::MakeConstSpan({int64_t{5}}));
  CHECK(computation.Parameters(0).value()[2] == 3);
  CHECK_STATUS(computation.PutGradient(0, 0, {1.0f}), absl::StatusCode::kFailedPrecondition,
               "the work is an evaluation, which has no gradient");
  CHECK_STATUS(computation.Release(0), absl::StatusCode::kFailedPrecondition,
               "the work is an evaluation, which has no gradient");
  REQUIRE_OK(computation.Finish(2.5, 1));
  task.join();
  REQUIRE_OK(result.status());
  CHECK(result->samples == 2);
  CHECK(result->loss_sum == 2.5);
  CHECK(result->correct == 1);
}

TEST_CASE("ProgramComputation: the batches after this one are told, without empty slots") {
  ProgramComputation computation(Job());
  CHECK(computation.Upcoming().empty());
  TableArrays parameters;
  GradientArrays gradient;
  const Work work = TrainingWork(0, 4, 4), second = TrainingWork(4, 8, 4);
  const std::vector<Work> plan = {work, second, TrainingWork(8, 8, 4)};
  REQUIRE_OK(computation.BeginPull(work, plan, &parameters).status());
  CHECK(computation.Forward(work, plan, parameters, nullptr));
  computation.BeginTraining(work, &parameters, &gradient);
  std::thread task(
      [&] { computation.Train(work, &gradient, [](int64_t) {}).status().IgnoreError(); });
  REQUIRE_OK(computation.Next(absl::InfiniteDuration()).status());
  REQUIRE(computation.Upcoming().size() == 1);
  const std::vector<int64_t> told(computation.Upcoming()[0].samples.begin(),
                                  computation.Upcoming()[0].samples.end());
  const uint64_t seed = computation.Upcoming()[0].seed;
  REQUIRE_OK(computation.Finish(0, 0));
  CHECK(computation.Upcoming().empty());
  task.join();
  TrainingTask next(&computation, second);
  const auto came = computation.Next(absl::InfiniteDuration());
  REQUIRE_OK(came.status());
  CHECK((*came)->samples == absl::MakeConstSpan(told));
  CHECK((*came)->seed == seed);
  REQUIRE_OK(computation.Finish(0, 0));
}

v1::JobSpec JobWithRows() {
  v1::JobSpec spec = Job();
  v1::Program::Rows& rows = *spec.mutable_program()->add_rows();
  rows.set_name("ads");
  rows.set_dim(2);
  return spec;
}
constexpr int kAds = 2;  // The table of `rows`.

// Answers the question for a work's keys as the program does, on the calling thread.
class KeyQuestion {
 public:
  KeyQuestion(ProgramComputation* computation, const Work& work, TableArrays* parameters) {
    thread_ = std::thread([this, computation, work, parameters] {
      keys = computation->BeginPull(work, {}, parameters);
    });
  }
  ~KeyQuestion() { Join(); }
  void Join() {
    if (thread_.joinable()) thread_.join();
  }

  absl::StatusOr<AllTableKeys> keys;

 private:
  std::thread thread_;
};

TEST_CASE("ProgramComputation: keys are asked for first, the next work's before this one") {
  ProgramComputation computation(JobWithRows());
  const Work first = TrainingWork(0, 2, 2), second = TrainingWork(2, 4, 2);
  TableArrays parameters;
  std::vector<int64_t> places(3);
  const auto name = [&](const Work& work, const std::vector<int64_t>& keys) {
    KeyQuestion question(&computation, work, &parameters);
    const auto asked = computation.Next(absl::InfiniteDuration());
    REQUIRE_OK(asked.status());
    CHECK((*asked)->kind == ProgramWork::Kind::kNameKeys);
    CHECK((*asked)->samples.size() == 2);
    REQUIRE_OK(computation.NameKeys(kAds, keys, absl::MakeSpan(places).first(keys.size())));
    REQUIRE_OK(computation.Finish(0, 0));
    question.Join();
    REQUIRE_OK(question.keys.status());
    CHECK(question.keys->at(kAds).dim == 2);
    return *question.keys;
  };
  const AllTableKeys keys = name(first, {7, -1, 7});
  CHECK(keys[0].batch == nullptr);
  REQUIRE(keys[kAds].batch->size() == 2);
  CHECK(places[0] == places[2]);
  CHECK(keys[kAds].batch->keys[static_cast<size_t>(places[1])] == ~uint64_t{0});
  REQUIRE(parameters[kAds].size() == 4);
  parameters[0] = {1, 2, 3};
  parameters[kAds] = {10, 11, 12, 13};
  GradientArrays gradient;
  CHECK(computation.BeginTraining(first, &parameters, &gradient)[kAds].batch == keys[kAds].batch);
  REQUIRE(name(second, {5})[kAds].batch->size() == 1);
  parameters[0] = {4, 5, 6};
  parameters[kAds] = {20, 21};
  absl::StatusOr<WorkResult> result;
  std::thread task([&] { result = computation.Train(first, &gradient, [](int64_t) {}); });
  const auto work = computation.Next(absl::InfiniteDuration());
  REQUIRE_OK(work.status());
  CHECK((*work)->kind == ProgramWork::Kind::kTrain);
  CHECK(computation.Parameters(kAds)->size() == 4);
  // The values that were pulled for it, although the next work's values have come.
  CHECK(computation.Parameters(0).value()[0] == 1);
  CHECK(computation.Parameters(kAds).value()[0] == 10);
  REQUIRE_OK(computation.PutGradient(kAds, 2, {1, 2}));
  REQUIRE_OK(computation.Finish(1, 0));
  task.join();
  REQUIRE_OK(result.status());
  CHECK(gradient.floats[kAds] == std::vector<float>{0, 0, 1, 2});
  computation.BeginTraining(second, &parameters, &gradient);
  CHECK(gradient.floats[kAds].size() == 2);
}

TEST_CASE("ProgramComputation: the keys of a batch to be evaluated are asked for") {
  ProgramComputation computation(JobWithRows());
  const Work work = EvaluationWork(0, 2);
  TableArrays parameters;
  KeyQuestion question(&computation, work, &parameters);
  const auto asked = computation.Next(absl::InfiniteDuration());
  REQUIRE_OK(asked.status());
  CHECK((*asked)->kind == ProgramWork::Kind::kNameTestKeys);
  std::vector<int64_t> places(2);
  REQUIRE_OK(computation.NameKeys(kAds, {5, 5}, absl::MakeSpan(places)));
  REQUIRE_OK(computation.Finish(0, 0));
  question.Join();
  REQUIRE_OK(question.keys.status());
  CHECK(question.keys->at(kAds).batch->size() == 1);
  parameters[kAds] = {7, 8};
  absl::StatusOr<WorkResult> result;
  std::thread task([&] { result = computation.Evaluate(work, parameters); });
  REQUIRE_OK(computation.Next(absl::InfiniteDuration()).status());
  CHECK(computation.Parameters(kAds)->size() == 2);
  CHECK(computation.Parameters(kAds).value()[1] == 8);
  REQUIRE_OK(computation.Finish(1, 0));
  task.join();
  REQUIRE_OK(result.status());
}

// The program names one key and finishes the question. Returns the batch's seed.
uint64_t NameOneKey(ProgramComputation* computation, int64_t key) {
  const auto asked = computation->Next(absl::InfiniteDuration());
  REQUIRE_OK(asked.status());
  REQUIRE((*asked)->kind == ProgramWork::Kind::kNameKeys);
  const uint64_t seed = (*asked)->seed;
  std::vector<int64_t> places(1);
  REQUIRE_OK(computation->NameKeys(kAds, {key}, absl::MakeSpan(places)));
  REQUIRE_OK(computation->Finish(0, 0));
  return seed;
}

// The seed of the batch that a task without a plan asks about.
uint64_t SeedOfBatch(const Work& work) {
  ProgramComputation computation(JobWithRows());
  TableArrays parameters;
  KeyQuestion question(&computation, work, &parameters);
  return NameOneKey(&computation, 1);
}

// The task has trained its first work, and knows what comes after it.
struct TaskWithAPlan {
  explicit TaskWithAPlan(ProgramComputation* computation) {
    absl::Status pulled, trained;
    std::thread task([&] {
      pulled = computation->BeginPull(plan[0], plan, &parameters).status();
      computation->BeginTraining(plan[0], &parameters, &gradient);
      trained = computation->Train(plan[0], &gradient, [](int64_t) {}).status();
    });
    NameOneKey(computation, 5);
    REQUIRE_OK(computation->Next(absl::InfiniteDuration()).status());
    REQUIRE_OK(computation->Finish(1, 0));
    task.join();
    REQUIRE_OK(pulled);
    REQUIRE_OK(trained);
  }
  const std::vector<Work> plan = {TrainingWork(0, 2, 2), TrainingWork(2, 4, 2),
                                  TrainingWork(4, 6, 2)};
  TableArrays parameters;
  GradientArrays gradient;
};

TEST_CASE("ProgramComputation: keys are asked for ahead while the task waits for servers") {
  ProgramComputation computation(JobWithRows());
  TaskWithAPlan task(&computation);
  SECTION("and its next pull has them") {
    CHECK(NameOneKey(&computation, 7) == SeedOfBatch(task.plan[1]));
    const auto keys = computation.BeginPull(task.plan[1], {}, &task.parameters);
    REQUIRE_OK(keys.status());
    CHECK(keys->at(kAds).batch->keys == std::vector<uint64_t>{7});
  }
  SECTION("and its next pull waits for them") {
    KeyQuestion question(&computation, task.plan[1], &task.parameters);
    CHECK(NameOneKey(&computation, 7) == SeedOfBatch(task.plan[1]));
    question.Join();
    REQUIRE_OK(question.keys.status());
    CHECK(question.keys->at(kAds).batch->keys == std::vector<uint64_t>{7});
  }
  SECTION("and for others if the plan was changed") {
    CHECK(NameOneKey(&computation, 7) == SeedOfBatch(task.plan[1]));
    KeyQuestion question(&computation, task.plan[2], &task.parameters);
    CHECK(NameOneKey(&computation, 8) == SeedOfBatch(task.plan[2]));
    question.Join();
    REQUIRE_OK(question.keys.status());
    CHECK(question.keys->at(kAds).batch->keys == std::vector<uint64_t>{8});
  }
  SECTION("and a failure meanwhile is one that no work returns") {
    REQUIRE_OK(computation.Next(absl::InfiniteDuration()).status());
    computation.Fail(absl::InvalidArgumentError("KeyError: x"));
    CHECK_STATUS(computation.idle_failure(), absl::StatusCode::kInvalidArgument, "KeyError: x");
    CHECK_STATUS(computation.BeginPull(task.plan[1], {}, &task.parameters).status(),
                 absl::StatusCode::kInvalidArgument, "KeyError: x");
  }
}

TEST_CASE("ProgramComputation: a pull without samples asks for no keys") {
  ProgramComputation computation(JobWithRows());
  TableArrays parameters;
  Work work;
  work.kind = Work::Kind::kExport;
  const auto keys = computation.BeginPull(work, {}, &parameters);
  REQUIRE_OK(keys.status());
  CHECK(keys->at(kAds).batch->size() == 0);
  CHECK(parameters[0].size() == 3);
}

TEST_CASE("ProgramComputation: wrong calls about keys are refused") {
  ProgramComputation computation(JobWithRows());
  TableArrays parameters;
  std::vector<int64_t> places(1);
  CHECK_STATUS(computation.NameKeys(kAds, {1}, absl::MakeSpan(places)),
               absl::StatusCode::kFailedPrecondition, "there is no work: Next has to come first");
  KeyQuestion question(&computation, TrainingWork(0, 2, 2), &parameters);
  REQUIRE_OK(computation.Next(absl::InfiniteDuration()).status());
  CHECK_STATUS(computation.NameKeys(0, {1}, absl::MakeSpan(places)),
               absl::StatusCode::kInvalidArgument,
               "table 0 and 1 keys, expected a table of rows and at most 4294967295");
  CHECK_STATUS(computation.Parameters(kAds).status(), absl::StatusCode::kFailedPrecondition,
               "the work asks for keys, which have to be named first");
  CHECK_FALSE(computation.Parameters(kAds).ok());
  computation.Fail(absl::InvalidArgumentError("KeyError: x"));
  question.Join();
  CHECK_STATUS(question.keys.status(), absl::StatusCode::kInvalidArgument, "KeyError: x");
}

// The task's side of a run at own pace.
struct Run {
  explicit Run(ProgramComputation* of) : computation(*of) {
    computation.BeginRun(TrainingWork(1, 2, 1), tables, [this] { ++changes; });
  }
  ProgramComputation& computation;
  int changes = 0;
  std::shared_ptr<TableOperations> tables =
      std::make_shared<TableOperations>(nullptr, std::vector<v1::TableSpec>(), nullptr);
};

TEST_CASE("ProgramComputation: a run has tables from Next to Finish") {
  ProgramComputation computation(Job());
  CHECK(absl::IsFailedPrecondition(computation.TablesToWait().status()));
  Run run(&computation);
  CHECK(absl::IsFailedPrecondition(computation.Tables().status()));
  const auto work = computation.Next(absl::InfiniteDuration());
  REQUIRE_OK(work.status());
  CHECK((*work)->kind == ProgramWork::Kind::kRun);
  CHECK((*work)->samples.empty());
  CHECK(computation.Tables().value() == run.tables);
  CHECK_THAT(std::string(computation.PutGradient(0, 0, {}).message()), Catch::Contains("own pace"));
  CHECK_FALSE(computation.RunResult().has_value());
  REQUIRE_OK(computation.Finish(0, 0));
  CHECK(run.changes == 1);
  const absl::StatusOr<WorkResult> result = computation.RunResult().value();
  REQUIRE_OK(result.status());
  CHECK(result->samples == 1);
  CHECK(absl::IsFailedPrecondition(computation.Tables().status()));
  CHECK(computation.TablesToWait().value() == run.tables);  // Begun operations may be awaited.
  computation.EndRun();
  computation.Leave();  // It may leave now.
  computation.Fail(absl::OkStatus());
  CHECK(run.changes == 1);
  CHECK(computation.RunResult()->ok());
}

TEST_CASE("ProgramComputation: a run ends with the program's failure, or when it is taken away") {
  ProgramComputation computation(Job());
  Run run(&computation);
  REQUIRE_OK(computation.Next(absl::InfiniteDuration()).status());
  SECTION("failed") {
    computation.Fail(absl::InvalidArgumentError("ValueError: no"));
    CHECK(run.changes == 1);
    CHECK(computation.RunResult()->status().message() == "ValueError: no");
  }
  SECTION("left") {
    computation.Leave();
    CHECK(run.changes == 1);
    CHECK_THAT(std::string(computation.RunResult()->status().message()), Catch::Contains("left"));
  }
  SECTION("taken away") {
    computation.EndRun();
    CHECK(absl::IsCancelled(computation.Finish(0, 0)));
    computation.End();
    CHECK(absl::IsCancelled(computation.Tables().status()));
    CHECK(absl::IsOutOfRange(computation.Next(absl::InfiniteDuration()).status()));
  }
}

}  // namespace
}  // namespace capstan::worker::program_computation_test
