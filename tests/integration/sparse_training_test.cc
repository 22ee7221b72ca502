// Models on sparse features learn through real servers what they learn in one process.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/examples/bad_lines.h"
#include "common/examples/click_log.h"
#include "common/examples/example_files.h"
#include "common/examples/example_source.h"
#include "common/examples/file_ranges.h"
#include "common/examples/svmlight_parser.h"
#include "common/sparse_models/factor_model.h"
#include "common/sparse_models/metrics.h"
#include "common/testing/status_matchers.h"
#include "tests/benchmark/scratch_folder.h"
#include "tests/integration/sparse_fleet.h"

namespace capstan::testing {
namespace {

using benchmark::ScratchFolder;

constexpr char kServer[] = "server/capstan-server";

v1::Consistency Asp() {
  v1::Consistency consistency;
  consistency.mutable_asp();
  return consistency;
}

v1::Consistency Ssp(int bound) {
  v1::Consistency consistency;
  consistency.mutable_ssp()->set_staleness_bound(bound);
  return consistency;
}

v1::Optimizer Adagrad(float rate) {
  v1::Optimizer optimizer;
  optimizer.mutable_adagrad();
  optimizer.set_learning_rate(rate);
  return optimizer;
}

v1::Optimizer Ftrl(float rate) {
  v1::Optimizer optimizer;
  optimizer.mutable_ftrl();
  optimizer.set_learning_rate(rate);
  return optimizer;
}

v1::Optimizer Sgd(float rate) {
  v1::Optimizer optimizer;
  optimizer.mutable_sgd();
  optimizer.set_learning_rate(rate);
  return optimizer;
}

struct Course {
  FactorModel::Options model;
  v1::Optimizer optimizer;
  v1::Consistency consistency;
  int epochs = 1;
  int64_t batch_size = 200;
};

// What the trained model says of `test`: 2 workers and 2 servers.
std::vector<float> TrainAndPredict(const Course& course, const ExampleBatch& train,
                                   const ExampleBatch& test) {
  REQUIRE_OK_AND_ASSIGN(const auto folder, ScratchFolder::Make(ScratchFolder::Home(), "sparse"));
  SparseFleet::Options options{.program = kServer, .folder = folder->path()};
  options.batch_size = course.batch_size;
  options.optimizer = course.optimizer;
  options.consistency = course.consistency;
  options.make_model = [&course] { return FactorModel::Create(course.model).value(); };
  REQUIRE_OK_AND_ASSIGN(const auto fleet, SparseFleet::Start(options));
  double before = 1e9;
  for (int epoch = 0; epoch < course.epochs; ++epoch) {
    REQUIRE_OK_AND_ASSIGN(const double loss, fleet->TrainEpoch(train));
    CHECK(loss < before);
    before = loss;
  }
  REQUIRE_OK_AND_ASSIGN(std::vector<float> outputs, fleet->Predict(test));
  return outputs;
}

double AucOf(const std::vector<float>& scores, const ExampleBatch& examples) {
  AucMetric metric;
  for (size_t i = 0; i < scores.size(); ++i) metric.Add(scores[i], examples.labels()[i] > 0);
  return metric.Auc();
}

// Half of what can be known of a click is in pairs of keys.
TEST_CASE("Sparse training: a factorisation machine finds pairs through real servers",
          "[integration]") {
  constexpr ClickLog::Options kClicks = {.seed = 7,
                                         .fields = 6,
                                         .keys_per_field = 40,
                                         .zipf_exponent = 0.5,
                                         .dense_columns = 2,
                                         .rank = 2,
                                         .bias = -0.5,
                                         .linear_stddev = 1,
                                         .interaction_stddev = 2};
  constexpr uint64_t kTrain = 80'000, kTest = 10'000;
  REQUIRE_OK_AND_ASSIGN(const ClickLog log, ClickLog::Create(kClicks));
  ExampleBatch train(2), test(2);
  log.Append(0, kTrain, &train, nullptr);
  std::vector<double> probabilities;
  log.Append(kTrain, kTrain + kTest, &test, &probabilities);
  const double best = AucOf(std::vector<float>(probabilities.begin(), probabilities.end()), test);
  Course course{.model = FactorModel::FactorizationMachine(2, 4),
                .optimizer = Adagrad(0.05f),
                .consistency = Asp(),
                .epochs = 5};
  course.model.factor_std = 0.1f;
  SECTION("ASP") {}
  SECTION("SSP") { course.consistency = Ssp(2); }
  SECTION("a linear model does not") {
    course.model = FactorModel::LogisticRegression(2);
    CHECK(best - AucOf(TrainAndPredict(course, train, test), test) > 0.15);
    return;
  }
  CHECK(best - AucOf(TrainAndPredict(course, train, test), test) < 0.01);
}

std::optional<ExampleBatch> ReadSvmlight(const std::string& name) {
  const std::optional<std::string> path = RealData(name);
  if (!path.has_value()) return std::nullopt;
  REQUIRE_OK_AND_ASSIGN(const std::vector<FileRange> ranges, ListRanges({*path}, int64_t{1} << 40));
  SvmlightParser parser;
  BadLines bad_lines(0);
  ExampleBatch examples;
  REQUIRE_OK_AND_ASSIGN(const auto source, ExampleSource::Open(ranges[0], &parser, &bad_lines, {}));
  REQUIRE_OK(source->Next(1'000'000, &examples));
  return examples;
}

// LIBLINEAR 2.3, `liblinear-train -s 0` and `liblinear-predict` on the same files: 84.9518 %.
TEST_CASE("Sparse training: logistic regression on a9a is as accurate as LIBLINEAR's",
          "[integration]") {
  constexpr double kLiblinear = 0.849518;
  const std::optional<ExampleBatch> train = ReadSvmlight("a9a/a9a");
  const std::optional<ExampleBatch> test = ReadSvmlight("a9a/a9a.t");
  if (!train.has_value() || !test.has_value()) return;
  Course course{.model = FactorModel::LogisticRegression(0),
                .optimizer = Ftrl(0.1f),
                .consistency = Asp(),
                .epochs = 5,
                .batch_size = 100};
  SECTION("FTRL, ASP") {}
  SECTION("FTRL, SSP") { course.consistency = Ssp(2); }
  SECTION("SGD, ASP") { course.optimizer = Sgd(0.5f); }
  SECTION("SGD, SSP") {
    course.optimizer = Sgd(0.5f);
    course.consistency = Ssp(2);
  }
  const std::vector<float> logits = TrainAndPredict(course, *train, *test);
  int64_t right = 0;
  for (size_t i = 0; i < logits.size(); ++i) right += (logits[i] > 0) == (test->labels()[i] > 0);
  const double accuracy = static_cast<double>(right) / static_cast<double>(logits.size());
  CHECK(std::abs(accuracy - kLiblinear) < 0.002);
}

}  // namespace
}  // namespace capstan::testing
