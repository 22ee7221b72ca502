#include "worker/training/trainer/sparse_trainer.h"

#include <google/protobuf/text_format.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/testing/status_matchers.h"

namespace capstan::worker::sparse_trainer_test {
namespace {

constexpr char kJob[] = R"pb(
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
    test { first_example: 60 examples: 7 }
  }
  training { epochs: 1 batch_size: 10 seed: 5 }
)pb";

std::unique_ptr<SparseTrainer> Make(const std::string& change = "") {
  v1::JobSpec job;
  REQUIRE(google::protobuf::TextFormat::ParseFromString(kJob, &job));
  REQUIRE(google::protobuf::TextFormat::MergeFromString(change, &job));
  REQUIRE_OK_AND_ASSIGN(auto trainer, SparseTrainer::Create(job));
  return trainer;
}

struct Numbers {
  explicit Numbers(const SparseBatch& batch, float value = 0.5f)
      : rows(static_cast<size_t>(batch.keys->size() * 3), value), dense(2, value) {}
  std::vector<float> rows, dense;
};

absl::StatusOr<BatchResult> Train(SparseTrainer& trainer, const SparseBatch& batch,
                                  const Numbers& parameters, Numbers* gradient,
                                  int64_t gradient_samples) {
  return trainer.Train(batch, gradient_samples, parameters.rows, parameters.dense,
                       absl::MakeSpan(gradient->rows), absl::MakeSpan(gradient->dense));
}

double Norm(const Numbers& numbers) {
  double squares = 0;
  for (const float v : numbers.rows) squares += static_cast<double>(v) * static_cast<double>(v);
  for (const float v : numbers.dense) squares += static_cast<double>(v) * static_cast<double>(v);
  return std::sqrt(squares);
}

TEST_CASE("Sparse trainer: a batch names each row of its examples once", "[worker][training]") {
  const auto trainer = Make();
  CHECK(trainer->train_samples() == 60);
  CHECK(trainer->test_samples() == 7);
  REQUIRE_OK_AND_ASSIGN(const SparseBatch batch, trainer->LoadTraining(Epoch(0), {10, 20}));
  CHECK(batch.examples.count() == 10);
  REQUIRE(batch.places.size() == batch.examples.keys().size());
  CHECK(batch.keys->size() <= 15);
  for (size_t i = 0; i < batch.places.size(); ++i) {
    CHECK(batch.keys->keys[batch.places[i]] == batch.examples.keys()[i]);
  }
}

TEST_CASE("Sparse trainer: an empty slot needs no rows and has no gradient", "[worker][training]") {
  const auto trainer = Make();
  REQUIRE_OK_AND_ASSIGN(const SparseBatch batch, trainer->LoadTraining(Epoch(0), {60, 60}));
  CHECK(batch.keys->size() == 0);
  Numbers gradient(batch, 9.0f);
  REQUIRE_OK_AND_ASSIGN(const BatchResult result,
                        Train(*trainer, batch, Numbers(batch), &gradient, 10));
  CHECK(result.loss_sum == 0);
  CHECK(gradient.dense == std::vector<float>(2, 0.0f));
}

TEST_CASE("Sparse trainer: slots of an update add up to its gradient", "[worker][training]") {
  const auto trainer = Make();
  std::map<uint64_t, double> sums;
  for (const Range part : {Range{0, 4}, Range{4, 10}}) {
    REQUIRE_OK_AND_ASSIGN(const SparseBatch batch, trainer->LoadTraining(Epoch(1), part));
    Numbers gradient(batch);
    REQUIRE_OK(Train(*trainer, batch, Numbers(batch), &gradient, 10));
    for (size_t k = 0; k < batch.keys->keys.size(); ++k) {
      sums[batch.keys->keys[k]] += static_cast<double>(gradient.rows[3 * k]);
    }
  }
  REQUIRE_OK_AND_ASSIGN(const SparseBatch whole, trainer->LoadTraining(Epoch(1), {0, 10}));
  Numbers gradient(whole);
  REQUIRE_OK(Train(*trainer, whole, Numbers(whole), &gradient, 10));
  REQUIRE(sums.size() == whole.keys->keys.size());
  for (size_t k = 0; k < whole.keys->keys.size(); ++k) {
    CHECK(sums[whole.keys->keys[k]] == Approx(gradient.rows[3 * k]).margin(1e-6));
  }
}

TEST_CASE("Sparse trainer: the gradient is clipped as a whole", "[worker][training]") {
  const auto free = Make();
  const auto clipped = Make("optimizer { clip_norm: 0.01 }");
  REQUIRE_OK_AND_ASSIGN(const SparseBatch batch, free->LoadTraining(Epoch(0), {0, 10}));
  Numbers gradient(batch), short_gradient(batch);
  REQUIRE_OK(Train(*free, batch, Numbers(batch), &gradient, 20));
  REQUIRE_OK(Train(*clipped, batch, Numbers(batch), &short_gradient, 20));
  CHECK(Norm(gradient) > 0.01);
  CHECK(Norm(short_gradient) == Approx(0.005).epsilon(1e-4));  // The batch is half of the update.
}

TEST_CASE("Sparse trainer: what is not finite is divergence", "[worker][training]") {
  const auto trainer = Make();
  REQUIRE_OK_AND_ASSIGN(const SparseBatch batch, trainer->LoadTraining(Epoch(0), {0, 10}));
  Numbers parameters(batch), gradient(batch);
  parameters.rows[0] = std::numeric_limits<float>::quiet_NaN();
  CHECK_STATUS(Train(*trainer, batch, parameters, &gradient, 10), absl::StatusCode::kOutOfRange,
               "diverged: the loss of a batch of 10 examples is nan");
}

TEST_CASE("Sparse trainer: test examples are counted right or wrong", "[worker][training]") {
  const auto trainer = Make();
  REQUIRE_OK_AND_ASSIGN(const SparseBatch batch, trainer->LoadTest({0, 7}));
  Numbers parameters(batch, 0.0f);
  parameters.dense[0] = 3;  // With this linear.bias all are clicks.
  std::vector<float> outputs;
  const BatchResult result = trainer->Evaluate(batch, parameters.rows, parameters.dense, &outputs);
  int64_t clicks = 0;
  for (const float label : batch.examples.labels()) clicks += label > 0;
  CHECK(result.correct == clicks);
  CHECK(outputs == std::vector<float>(7, 3.0f));
}

TEST_CASE("Sparse trainer: positions beyond the examples are refused", "[worker][training]") {
  const auto trainer = Make();
  CHECK_STATUS(trainer->LoadTraining(Epoch(0), {50, 61}), absl::StatusCode::kInvalidArgument,
               "training examples [50, 61), expected a part of [0, 60)");
  CHECK_STATUS(trainer->LoadTest({0, 8}), absl::StatusCode::kInvalidArgument,
               "test examples [0, 8), expected a part of [0, 7)");
}

}  // namespace
}  // namespace capstan::worker::sparse_trainer_test
