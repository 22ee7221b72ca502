#include "worker/task/computation/computation.h"

#include <google/protobuf/text_format.h>

#include <catch2/catch.hpp>
#include <cstddef>
#include <string>
#include <vector>

#include "common/testing/status_matchers.h"
#include "worker/training/trainer/sparse_trainer.h"

namespace capstan::worker::computation_test {
namespace {

constexpr char kClicks[] = R"pb(
  model {
    sparse {
      factorization_machine { rank: 2 }
      buckets: 4
    }
  }
  data {
    format: CLICK_LOG
    click_log { fields: 3 keys_per_field: 5 dense_columns: 1 }
    train { examples: 60 }
    test { first_example: 60 examples: 20 }
  }
  training { epochs: 1 batch_size: 10 seed: 5 }
)pb";

v1::JobSpec JobOf(const std::string& text) {
  v1::JobSpec job;
  REQUIRE(google::protobuf::TextFormat::ParseFromString(text, &job));
  return job;
}

Work Train(int64_t begin, int64_t end) {
  return {.kind = Work::Kind::kTrain, .positions = {begin, end}, .gradient_samples = end - begin};
}
Work Evaluate(int64_t begin, int64_t end) {
  return {.kind = Work::Kind::kEvaluate, .positions = {begin, end}};
}

std::vector<uint64_t> KeysOf(const SparseBatch& batch) { return batch.keys->keys; }

TEST_CASE("Computation: whatever is made ready ahead, a batch has the rows of its own work",
          "[worker][task]") {
  REQUIRE_OK_AND_ASSIGN(const auto computation, Computation::Create(JobOf(kClicks), {}));
  REQUIRE_OK_AND_ASSIGN(const auto trainer, SparseTrainer::Create(JobOf(kClicks)));
  TableArrays parameters;
  const auto pull = [&](const Work& work, const std::vector<Work>& upcoming) {
    REQUIRE_OK_AND_ASSIGN(const AllTableKeys keys,
                          computation->BeginPull(work, upcoming, &parameters));
    REQUIRE(parameters[0].size() == static_cast<size_t>(keys[0].batch->size() * keys[0].dim));
    return keys[0].batch->keys;
  };
  const auto expected = [&](int64_t begin, int64_t end) {
    REQUIRE_OK_AND_ASSIGN(const SparseBatch batch, trainer->LoadTraining(Epoch(), {begin, end}));
    return KeysOf(batch);
  };
  CHECK(pull(Train(0, 10), {Train(0, 10), Train(10, 20), Train(20, 30)}) == expected(0, 10));
  CHECK(pull(Train(10, 20), {Train(10, 20), Train(20, 30)}) == expected(10, 20));
  // These are another plan, no plan, a plan without this work, and a slot beyond the data.
  CHECK(pull(Train(40, 50), {Train(40, 50), Train(20, 30)}) == expected(40, 50));
  CHECK(pull(Train(50, 60), {}) == expected(50, 60));
  CHECK(pull(Train(5, 7), {Train(50, 60), Train(0, 10)}) == expected(5, 7));
  CHECK(pull(Train(0, 0), {Train(0, 0)}).empty());
  REQUIRE_OK_AND_ASSIGN(const SparseBatch test, trainer->LoadTest({4, 9}));
  CHECK(pull(Evaluate(4, 9), {Evaluate(4, 9), Evaluate(9, 14)}) == KeysOf(test));
}

TEST_CASE("Computation: what is pulled while a batch is trained does not change its gradient",
          "[worker][task]") {
  const bool early = GENERATE(false, true);
  REQUIRE_OK_AND_ASSIGN(const auto computation, Computation::Create(JobOf(kClicks), {}));
  TableArrays parameters;
  GradientArrays gradient;
  const Work work = Train(0, 10);
  REQUIRE_OK(computation->BeginPull(work, {work, Train(10, 20)}, &parameters));
  for (std::vector<float>& table : parameters) table.assign(table.size(), 0.25f);
  computation->BeginTraining(work, &parameters, &gradient);
  if (early) {
    REQUIRE_OK(computation->BeginPull(Train(10, 20), {Train(10, 20)}, &parameters));
    for (std::vector<float>& table : parameters) table.assign(table.size(), 99.0f);
  }
  REQUIRE_OK_AND_ASSIGN(const WorkResult result,
                        computation->Train(work, &gradient, [](int64_t) {}));
  CHECK(result.samples == 10);
  // The gradient is the same in either case.
  REQUIRE_OK_AND_ASSIGN(const auto trainer, SparseTrainer::Create(JobOf(kClicks)));
  REQUIRE_OK_AND_ASSIGN(const SparseBatch batch, trainer->LoadTraining(Epoch(), {0, 10}));
  std::vector<float> rows(static_cast<size_t>(batch.keys->size() * 3), 0.25f);
  std::vector<float> dense(2, 0.25f), row_gradients(rows.size()), dense_gradients(2);
  REQUIRE_OK(trainer->Train(batch, 10, rows, dense, absl::MakeSpan(row_gradients),
                            absl::MakeSpan(dense_gradients)));
  CHECK(gradient.floats[0] == row_gradients);
  CHECK(gradient.floats[1] == dense_gradients);
}

TEST_CASE("Computation: what cannot be made ready fails its own work, not those before or another",
          "[worker][task]") {
  REQUIRE_OK_AND_ASSIGN(const auto computation, Computation::Create(JobOf(kClicks), {}));
  TableArrays parameters;
  REQUIRE_OK(computation->BeginPull(Train(40, 50), {Train(40, 50), Train(50, 70)}, &parameters));
  CHECK_STATUS(computation->BeginPull(Train(50, 70), {Train(50, 70), Train(0, 10)}, &parameters),
               absl::StatusCode::kInvalidArgument,
               "training examples [50, 70), expected a part of [0, 60)");
  REQUIRE_OK(computation->BeginPull(Train(0, 10), {Train(0, 10)}, &parameters));
}

}  // namespace
}  // namespace capstan::worker::computation_test
