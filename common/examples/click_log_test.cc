#include "common/examples/click_log.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "common/examples/testing/parser_checks.h"
#include "common/testing/status_matchers.h"

namespace capstan::click_log_test {
namespace {

using ::capstan::testing::CheckInvariants;
using ::capstan::testing::SameExamples;
using Options = ClickLog::Options;

ClickLog MakeLog(const Options& options) {
  REQUIRE_OK_AND_ASSIGN(ClickLog log, ClickLog::Create(options));
  return log;
}

struct Examples {
  Examples(const Options& options, uint64_t begin, uint64_t end) : batch(options.dense_columns) {
    MakeLog(options).Append(begin, end, &batch, &probabilities);
    CheckInvariants(batch);
  }
  ExampleBatch batch;
  std::vector<double> probabilities;
};

TEST_CASE("Click log: an example has a key of each field and its dense columns",
          "[common][examples]") {
  const Examples made({.fields = 7, .keys_per_field = 5, .dense_columns = 6}, 0, 100);
  REQUIRE(made.batch.count() == 100);
  for (int64_t i = 0; i < 100; ++i) {
    const ExampleView example = made.batch.example(i);
    CHECK((example.label == 0 || example.label == 1));
    REQUIRE(example.keys.size() == 7);
    for (int32_t field = 0; field < 7; ++field) {
      const auto at = static_cast<size_t>(field);
      CHECK(example.fields[at] == field);
      CHECK(example.values[at] == 1);
      const auto is_key = [&](uint64_t rank) {
        return ClickLog::KeyOf(field, rank) == example.keys[at];
      };
      CHECK((is_key(1) || is_key(2) || is_key(3) || is_key(4) || is_key(5)));
    }
  }
}

TEST_CASE("Click log: any split of a range gives the same examples", "[common][examples]") {
  const Options options = {.seed = 9, .fields = 5, .keys_per_field = 1000, .dense_columns = 3};
  const ClickLog log = MakeLog(options);
  const Examples whole(options, 100, 200);
  for (const uint64_t cut : {100, 101, 150, 200}) {
    ExampleBatch back(3);
    std::vector<double> back_probabilities;
    log.Append(cut, 200, &back, &back_probabilities);
    ExampleBatch both(3);
    std::vector<double> probabilities;
    log.Append(100, cut, &both, &probabilities);
    both.Append(back, 0, back.count());
    probabilities.insert(probabilities.end(), back_probabilities.begin(), back_probabilities.end());
    CHECK(SameExamples(both, whole.batch));
    CHECK(probabilities == whole.probabilities);
  }
  ExampleBatch far(3);
  log.Append(std::numeric_limits<uint64_t>::max() - 1, std::numeric_limits<uint64_t>::max(), &far,
             nullptr);
  CHECK(far.count() == 1);
}

TEST_CASE("Click log: seeds give other logs, the keys are the same", "[common][examples]") {
  const Examples one({.seed = 1, .keys_per_field = 2}, 0, 50);
  const Examples two({.seed = 2, .keys_per_field = 2}, 0, 50);
  CHECK_FALSE(SameExamples(one.batch, two.batch));
  CHECK(one.probabilities != two.probabilities);
  const std::set<uint64_t> ones(one.batch.keys().begin(), one.batch.keys().end());
  const std::set<uint64_t> twos(two.batch.keys().begin(), two.batch.keys().end());
  CHECK(ones == twos);
  CHECK(ones.size() == 20);
}

TEST_CASE("Click log: labels are drawn with the probabilities", "[common][examples]") {
  const uint64_t count = 200'000;
  const Examples made({.fields = 8, .keys_per_field = 100'000, .dense_columns = 2}, 0, count);
  double expected[10] = {};
  double variance[10] = {};
  double clicked[10] = {};
  for (size_t i = 0; i < count; ++i) {
    const double p = made.probabilities[i];
    REQUIRE((p > 0 && p < 1));
    const auto decile = static_cast<size_t>(p * 10);
    expected[decile] += p;
    variance[decile] += p * (1 - p);
    clicked[decile] += made.batch.labels()[i];
  }
  for (size_t i = 0; i < 10; ++i) {
    INFO("p from " << i << " tenths on: " << clicked[i] << " clicks of " << expected[i]);
    CHECK(variance[i] > 10);  // There are examples of all probabilities.
    CHECK(std::abs(clicked[i] - expected[i]) < 5 * std::sqrt(variance[i]));
  }
}

TEST_CASE("Click log: the probability of an example can be asked again", "[common][examples]") {
  const Options options = {.fields = 6, .dense_columns = 3, .rank = 9};
  const ClickLog log = MakeLog(options);
  const Examples made(options, 0, 50);
  for (int64_t i = 0; i < 50; ++i) {
    CHECK(log.Probability(made.batch.example(i)) == made.probabilities[static_cast<size_t>(i)]);
  }
}

double Logit(double p) { return std::log(p / (1 - p)); }

double StandardDeviation(const Options& options) {
  const Examples made(options, 0, 20'000);
  double sum = 0;
  double squares = 0;
  for (const double p : made.probabilities) {
    const double logit = Logit(p) - options.bias;
    sum += logit;
    squares += logit * logit;
  }
  const double n = 20'000;
  return std::sqrt(squares / n - (sum / n) * (sum / n));
}

TEST_CASE("Click log: the parts of the logit have the sizes asked for", "[common][examples]") {
  // All keys are equally frequent, and there are so many that their weights average out.
  Options options = {.fields = 12,
                     .keys_per_field = 1'000'000'000,
                     .zipf_exponent = 0,
                     .dense_columns = 4,
                     .bias = 0.5,
                     .linear_stddev = 0,
                     .interaction_stddev = 0};
  CHECK(StandardDeviation(options) < 1e-9);
  // The sample's own deviation is known to 1 % or so; dense weights are few: to a third.
  options.interaction_stddev = 0.8;
  CHECK(StandardDeviation(options) == Approx(0.8).epsilon(0.05));
  options.rank = 0;
  CHECK(StandardDeviation(options) < 1e-9);
  options.rank = 4;
  options.dense_columns = 0;
  options.linear_stddev = 0.6;
  CHECK(StandardDeviation(options) == Approx(1.0).epsilon(0.05));
  options.dense_columns = 12;
  options.interaction_stddev = 0;
  CHECK(StandardDeviation(options) == Approx(0.6).epsilon(0.35));
}

TEST_CASE("Click log: keys follow Zipf's law in each field", "[common][examples]") {
  const uint64_t count = 100'000;
  const Examples made({.fields = 2, .keys_per_field = 1000, .zipf_exponent = 1.2}, 0, count);
  std::map<uint64_t, double> found;
  for (const uint64_t key : made.batch.keys()) ++found[key];
  double total = 0;
  for (int rank = 1; rank <= 1000; ++rank) total += std::pow(rank, -1.2);
  for (int32_t field = 0; field < 2; ++field) {
    for (uint64_t rank = 1; rank <= 20; ++rank) {
      const double p = std::pow(static_cast<double>(rank), -1.2) / total;
      const double expected = p * static_cast<double>(count);
      INFO("field " << field << ", rank " << rank);
      CHECK(std::abs(found[ClickLog::KeyOf(field, rank)] - expected) <
            5 * std::sqrt(expected * (1 - p)));
    }
  }
}

TEST_CASE("Click log: options out of range are named", "[common][examples]") {
  const auto code = absl::StatusCode::kInvalidArgument;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinite = std::numeric_limits<double>::infinity();
  CHECK_STATUS(ClickLog::Create({.fields = 0}), code, "fields is 0, expected 1 to 65535");
  CHECK_STATUS(ClickLog::Create({.fields = 65536}), code, "fields is 65536");
  CHECK_STATUS(ClickLog::Create({.keys_per_field = 0}), code, "keys_per_field is 0");
  CHECK_STATUS(ClickLog::Create({.keys_per_field = (uint64_t{1} << 48) + 1}), code,
               "keys_per_field is 281474976710657");
  CHECK_STATUS(ClickLog::Create({.zipf_exponent = -0.1}), code, "zipf_exponent is -0.1");
  CHECK_STATUS(ClickLog::Create({.zipf_exponent = nan}), code, "zipf_exponent is nan");
  CHECK_STATUS(ClickLog::Create({.dense_columns = -1}), code, "dense_columns is -1");
  CHECK_STATUS(ClickLog::Create({.rank = 65}), code, "rank is 65, expected 0 to 64");
  CHECK_STATUS(ClickLog::Create({.bias = infinite}), code, "bias is inf");
  CHECK_STATUS(ClickLog::Create({.linear_stddev = -1}), code, "linear_stddev is -1");
  CHECK_STATUS(ClickLog::Create({.interaction_stddev = nan}), code, "interaction_stddev is nan");
}

}  // namespace
}  // namespace capstan::click_log_test
