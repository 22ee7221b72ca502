// Models learn what they are for: in process, without servers, from data whose truth is known.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "common/examples/click_log.h"
#include "common/metrics/score_counts.h"
#include "common/random/normal.h"
#include "common/random/philox.h"
#include "common/sparse_models/dlrm.h"
#include "common/sparse_models/factor_model.h"
#include "common/sparse_models/testing/local_training.h"
#include "common/testing/status_matchers.h"

namespace capstan::learning_test {
namespace {

using ::capstan::testing::LocalTraining;

// Clicks of which half of what can be known is in pairs of keys.
constexpr ClickLog::Options kClicks = {.seed = 7,
                                       .fields = 6,
                                       .keys_per_field = 40,
                                       .zipf_exponent = 0.5,
                                       .dense_columns = 2,
                                       .rank = 2,
                                       .bias = -0.5,
                                       .linear_stddev = 1,
                                       .interaction_stddev = 2};
constexpr uint64_t kTrain = 80'000;
constexpr uint64_t kTest = 10'000;

struct ClickData {
  ClickData() : train(kClicks.dense_columns), test(kClicks.dense_columns) {
    REQUIRE_OK_AND_ASSIGN(const ClickLog log, ClickLog::Create(kClicks));
    log.Append(0, kTrain, &train, nullptr);
    std::vector<double> probabilities;
    log.Append(kTrain, kTrain + kTest, &test, &probabilities);
    ScoreCounts counts;
    for (size_t i = 0; i < probabilities.size(); ++i) {
      counts.Add(static_cast<float>(probabilities[i]), test.labels()[i] > 0);
    }
    best_auc = counts.Auc();
  }

  // On the test examples, after some passes over the training examples.
  double AucOf(SparseModel& model, int epochs, float rate) const {
    LocalTraining training(model, {.rate = rate});
    for (int epoch = 0; epoch < epochs; ++epoch) training.Epoch(train);
    ScoreCounts counts;
    const std::vector<float> outputs = training.Predict(test);
    for (size_t i = 0; i < outputs.size(); ++i) counts.Add(outputs[i], test.labels()[i] > 0);
    return counts.Auc();
  }

  ExampleBatch train, test;
  double best_auc = 0;  // The AUC of the true probabilities.
};

// How far the model stays below the true probabilities.
double GapOf(SparseModel& model, int epochs, float rate) {
  static const ClickData* const data = new ClickData;
  REQUIRE(data->best_auc > 0.85);
  return data->best_auc - data->AucOf(model, epochs, rate);
}

double GapOf(FactorModel::Options options, int epochs, float rate) {
  INFO(options.name);
  options.factor_std = 0.1f;
  REQUIRE_OK_AND_ASSIGN(const std::unique_ptr<FactorModel> model, FactorModel::Create(options));
  return GapOf(*model, epochs, rate);
}

// Measured: 0.219 without pairs, 0.004 with them.
TEST_CASE("Learning: factors find what is in pairs of keys, a linear model does not",
          "[sparse_models]") {
  CHECK(GapOf(FactorModel::LogisticRegression(2), 4, 0.05f) > 0.15);
  CHECK(GapOf(FactorModel::FactorizationMachine(2, 4), 4, 0.05f) < 0.01);
}

// Measured: 0.004 and 0.007. Wide & deep has to make products out of ReLUs, which takes it longer.
TEST_CASE("Learning: deep models find what is in pairs of keys", "[sparse_models]") {
  CHECK(GapOf(FactorModel::DeepFm(2, 6, 4, {16}), 4, 0.05f) < 0.01);
  CHECK(GapOf(FactorModel::WideAndDeep(2, 6, 4, {32, 16}), 8, 0.05f) < 0.02);
}

// Measured: 0.008, without a linear term.
TEST_CASE("Learning: DLRM finds what is in pairs of keys", "[sparse_models]") {
  REQUIRE_OK_AND_ASSIGN(
      const std::unique_ptr<Dlrm> model,
      Dlrm::Create({.dense_columns = 2, .fields = 6, .dim = 8, .bottom = {16}, .top = {32}}));
  CHECK(GapOf(*model, 6, 0.05f) < 0.02);
}

// Ratings of low rank: 3.5 + two biases + a product of vectors + noise.
class RatingData {
 public:
  static constexpr uint32_t kUsers = 80, kItems = 60;
  static constexpr double kNoise = 0.2;

  explicit RatingData(uint64_t seed) : seed_(seed) {}

  ExampleBatch Draw(uint64_t begin, uint64_t end) const {
    ExampleBatch batch;
    for (uint64_t i = begin; i < end; ++i) {
      const auto words = Philox4x32(seed_, i);
      const uint64_t user = words[0] % kUsers, item = kUsers + words[1] % kItems;
      double rating = 3.5 + Normal(user, 0) + Normal(item, 0);
      for (uint64_t c = 1; c <= 3; ++c) rating += Normal(user, c) * Normal(item, c) / 2;
      rating += kNoise * NormalOf(words[2], words[3]);
      batch.AddFeature(user, 1, 0);
      batch.AddFeature(item, 1, 1);
      batch.Finish(static_cast<float>(rating));
    }
    return batch;
  }

 private:
  double Normal(uint64_t key, uint64_t column) const {
    const auto words = Philox4x32(MixKey(seed_, key), column);
    return NormalOf(words[0], words[1]);
  }
  const uint64_t seed_;
};

double RmseOf(const FactorModel::Options& options) {
  REQUIRE_OK_AND_ASSIGN(const std::unique_ptr<FactorModel> model, FactorModel::Create(options));
  const RatingData data(3);
  const ExampleBatch train = data.Draw(0, 20'000), test = data.Draw(20'000, 24'000);
  LocalTraining training(*model, {.rate = 0.2f});
  for (int epoch = 0; epoch < 10; ++epoch) training.Epoch(train);
  double squares = 0;
  const std::vector<float> outputs = training.Predict(test);
  for (size_t i = 0; i < outputs.size(); ++i) {
    const double error = static_cast<double>(outputs[i] - test.labels()[i]);
    squares += error * error;
  }
  return std::sqrt(squares / static_cast<double>(outputs.size()));
}

// Measured: an error of 0.203 with factors, 0.81 without.
TEST_CASE("Learning: matrix factorisation finds ratings of low rank but for their noise",
          "[sparse_models]") {
  CHECK(RmseOf(FactorModel::MatrixFactorization(3, 3)) < 1.1 * RatingData::kNoise);
  FactorModel::Options biases = FactorModel::MatrixFactorization(0, 3);
  biases.pairs = false;
  CHECK(RmseOf(biases) > 3 * RatingData::kNoise);
}

}  // namespace
}  // namespace capstan::learning_test
