// Tests of what only FTRL promises. Those of all rules are in optimizer_test.cc and
// reference_test.cc.
#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "absl/types/span.h"
#include "common/random/philox.h"
#include "server/optimizer/optimizer.h"
#include "server/optimizer/step_scalars.h"

namespace capstan::server::ftrl_test {
namespace {

OptimizerConfig Ftrl(float lr, float beta, float l1, float l2) {
  return {.kind = OptimizerKind::kFtrl, .learning_rate = lr, .beta = beta, .l1 = l1, .l2 = l2};
}

// Weights and their state, which starts as a server starts it.
struct Table {
  OptimizerConfig config;
  std::vector<float> w, z, n;
  int64_t step = 0;

  Table(const OptimizerConfig& rule, const std::vector<float>& weights)
      : config(rule),
        w(weights),
        z(weights.size(), InitialState(rule, 0)),
        n(weights.size(), InitialState(rule, 1)) {}

  void Update(const std::vector<float>& g) {
    float* const state[] = {z.data(), n.data()};
    Apply(config, step++, static_cast<int64_t>(w.size()), w.data(), g.data(),
          absl::MakeConstSpan(state), w.data());
  }
};

// Numbers of [-1, 1).
std::vector<float> Draw(size_t count, uint64_t key) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = 2.0f * ToUnitFloat(PhiloxWord(key, i)) - 1.0f;
  return values;
}

bool IsPlusZero(float value) { return std::bit_cast<uint32_t>(value) == 0; }

// Algorithm 1 of McMahan et al., 2013, in double, of one coordinate with x = 1.
struct Paper {
  double alpha, beta, l1, l2;
  double z = 0.0, n = 0.0;

  double Weight() const {
    if (std::abs(z) <= l1) return 0.0;
    return -(z - std::copysign(l1, z)) / ((beta + std::sqrt(n)) / alpha + l2);
  }
  void Update(double g) {
    const double sigma = (std::sqrt(n + g * g) - std::sqrt(n)) / alpha;
    z += g - sigma * Weight();
    n += g * g;
  }
};

TEST_CASE("FTRL: from weights of 0 it is algorithm 1 of the paper", "[server][optimizer]") {
  const size_t count = 100;
  const OptimizerConfig config =
      GENERATE(Ftrl(0.5f, 1.0f, 0.0f, 0.0f), Ftrl(0.5f, 1.0f, 2.0f, 0.0f),
               Ftrl(0.25f, 0.0f, 1.0f, 0.5f), Ftrl(4.0f, 2.0f, 0.5f, 8.0f));
  Table table(config, std::vector<float>(count, 0.0f));
  std::vector<Paper> papers(count, {config.learning_rate, config.beta, config.l1, config.l2});
  for (uint64_t step = 0; step < 200; ++step) {
    const std::vector<float> g = Draw(count, step);
    table.Update(g);
    for (size_t i = 0; i < count; ++i) {
      papers[i].Update(g[i]);
      // A dozen roundings an update, as for the other rules (reference_test.cc); none is of a
      // number beyond some 20 (z, and that divided by 1 / rate).
      const double tolerance = static_cast<double>(step + 1) * 12 * 0x1p-24 * 20;
      REQUIRE(std::abs(table.w[i] - papers[i].Weight()) <= tolerance);
      REQUIRE(std::abs(table.n[i] - papers[i].n) <= tolerance * 10);
    }
  }
}

TEST_CASE("FTRL: l1 makes what carries no signal exactly 0, and more of it with a higher l1",
          "[server][optimizer]") {
  // Least squares of y = x . truth, where only 4 of 64 features count, by a sample at a time.
  const size_t features = 64;
  const auto train = [&](float l1) {
    Table table(Ftrl(0.5f, 1.0f, l1, 0.0f), std::vector<float>(features, 0.0f));
    for (uint64_t sample = 0; sample < 2000; ++sample) {
      const std::vector<float> x = Draw(features, MixKey(1, sample));
      const float noise = Draw(1, MixKey(2, sample))[0];
      float error = noise - (2.0f * x[3] - 1.0f * x[20] + 1.5f * x[41] - 3.0f * x[60]);
      for (size_t i = 0; i < features; ++i) error += table.w[i] * x[i];
      std::vector<float> g(features);
      for (size_t i = 0; i < features; ++i) g[i] = error * x[i];
      table.Update(g);
    }
    return table.w;
  };
  const auto zeros = [](const std::vector<float>& w) {
    int count = 0;
    for (const float value : w) count += IsPlusZero(value);
    return count;
  };
  const std::vector<float> dense = train(0.0f), sparse = train(30.0f);
  CHECK(zeros(dense) == 0);
  CHECK(zeros(train(3.0f)) > 0);
  CHECK(zeros(train(3.0f)) < zeros(sparse));
  CHECK(zeros(sparse) >= 50);  // 60 features have no signal.
  for (const size_t i : {3, 20, 41, 60}) {
    INFO("feature " << i);
    CHECK(sparse[i] * dense[i] > 0.0f);
    CHECK(std::abs(sparse[i]) > 0.3f);
  }
}

TEST_CASE("FTRL: a weight of 0 comes back once its gradients are beyond l1",
          "[server][optimizer]") {
  Table table(Ftrl(1.0f, 1.0f, 2.5f, 0.0f), {0.0f});
  table.Update({-1.0f});
  CHECK(IsPlusZero(table.w[0]));
  table.Update({-1.0f});
  CHECK(IsPlusZero(table.w[0]));
  table.Update({-1.0f});
  CHECK(table.z[0] == -3.0f);
  CHECK(table.w[0] == Approx(0.5 / (1.0 + std::sqrt(3.0))).epsilon(1e-6));
  table.Update({1.0f});
  CHECK(IsPlusZero(table.w[0]));
}

TEST_CASE("FTRL: a weight stays where it was initialised until its first gradient",
          "[server][optimizer]") {
  OptimizerConfig config = Ftrl(0.5f, 1.0f, 0.25f, 4.0f);
  config.schedule.warmup_steps = 4;
  const std::vector<float> start = {0.75f, -0.75f, 0.0f, 0.75f};
  Table table(config, start);
  for (int i = 0; i < 10; ++i) table.Update({0.0f, -0.0f, 0.0f, 0.0f});
  CHECK(table.w == start);
  CHECK(table.z == std::vector<float>(4, 0.0f));
  CHECK(table.n == std::vector<float>(4, 0.0f));
  // Then it moves on from there: 1 / rate = (1 + 2) / 0.5 = 6, 6 (w - 0.75) + 2 + 0.25 + 4 w = 0.
  table.Update({2.0f, -2.0f, 2.0f, 0.0f});
  CHECK(table.w[0] == Approx(0.225).epsilon(1e-6));
  CHECK(table.w[1] == Approx(-0.225).epsilon(1e-6));
  CHECK(table.w[2] == Approx(-0.175).epsilon(1e-6));
  CHECK(table.w[3] == 0.75f);
}

TEST_CASE("FTRL: a change of the rate alone moves no weight", "[server][optimizer]") {
  OptimizerConfig config = Ftrl(0.5f, 1.0f, 0.0f, 0.0f);
  config.schedule = {.kind = ScheduleKind::kStep, .step_every = 5, .step_factor = 0.125f};
  Table table(config, Draw(100, 1));
  for (uint64_t step = 0; step < 5; ++step) table.Update(Draw(100, 10 + step));
  const std::vector<float> before = table.w;
  for (int i = 0; i < 20; ++i) table.Update(std::vector<float>(100, 0.0f));
  for (size_t i = 0; i < before.size(); ++i) {
    CHECK(table.w[i] == Approx(before[i]).epsilon(1e-5));
  }
}

TEST_CASE("FTRL: weights stay finite and where they are when the rate falls to 0",
          "[server][optimizer]") {
  OptimizerConfig config = Ftrl(0.5f, GENERATE(0.0f, 1.0f), 0.5f, 0.25f);
  int64_t steps_until_low = 0;
  SECTION("cosine to 0") {
    config.schedule = {.kind = ScheduleKind::kCosine, .cosine_steps = 20};
    steps_until_low = 20;
  }
  SECTION("steps through the denormal numbers to 0") {
    config.schedule = {.kind = ScheduleKind::kStep, .step_every = 1, .step_factor = 0.5f};
    steps_until_low = 40;
  }
  Table table(config, Draw(100, 1));
  uint64_t key = 10;
  while (table.step < steps_until_low) table.Update(Draw(100, key++));
  const std::vector<float> settled = table.w;
  while (table.step < 250) table.Update(Draw(100, key++));
  CHECK(static_cast<float>(ScheduledLearningRate(config, table.step)) == 0.0f);
  for (size_t i = 0; i < settled.size(); ++i) {
    CHECK(table.w[i] == Approx(settled[i]).epsilon(1e-4).margin(1e-9));
  }
}

TEST_CASE("FTRL: the smallest and the largest gradients leave finite numbers",
          "[server][optimizer]") {
  using Limits = std::numeric_limits<float>;
  const OptimizerConfig config =
      GENERATE(Ftrl(0.5f, 0.0f, 0.0f, 0.0f), Ftrl(0.5f, 1.0f, 0.5f, 0.0f));
  Table table(config, {0.0f, 1.0f, 0.0f, 1.0f, 0.0f, 1.0f});
  const float tiny = Limits::denorm_min(), small = 1e-21f, large = 1e30f;
  for (int i = 0; i < 3; ++i) table.Update({tiny, -tiny, small, small, large, large});
  for (size_t i = 0; i < table.w.size(); ++i) {
    INFO("element " << i);
    CHECK(std::isfinite(table.w[i]));
    CHECK(std::isfinite(table.z[i]));
    CHECK(std::isfinite(table.n[i]));
  }
  CHECK(table.w[1] == 1.0f);  // Its square is 0: there is no telling which way to go, or how far.
}

}  // namespace
}  // namespace capstan::server::ftrl_test
