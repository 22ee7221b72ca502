#include "server/optimizer/row_loops.h"

#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "common/random/philox.h"
#include "common/types/instruction_set.h"
#include "kernels/cuda/element_rules.h"
#include "server/optimizer/step_scalars.h"
#include "server/optimizer/testing/reference.h"

namespace capstan::server::row_loops_test {
namespace {

using Kind = OptimizerKind;

std::vector<OptimizerConfig> Rules() {
  std::vector<OptimizerConfig> rules = {
      {.kind = Kind::kSgd},
      {.kind = Kind::kMomentum},
      {.kind = Kind::kNesterov},
      {.kind = Kind::kAdagrad, .initial_accumulator = 0.1f},
      {.kind = Kind::kRmsProp, .momentum = 0.0f},
      {.kind = Kind::kRmsProp, .momentum = 0.9f},
      {.kind = Kind::kAdam},
      {.kind = Kind::kAdamW},
      {.kind = Kind::kFtrl, .l1 = 0.5f, .l2 = 0.25f},
      {.kind = Kind::kAdadelta, .epsilon = 1e-6f},
      {.kind = Kind::kAmsGrad, .beta2 = 0.5f},
      {.kind = Kind::kLion, .beta2 = 0.99f},
  };
  for (OptimizerConfig& rule : rules) {
    rule.learning_rate = 0.05f;
    rule.clip_value = 0.75f;
    if (rule.kind != Kind::kFtrl) rule.weight_decay = 0.01f;
  }
  return rules;
}

float Draw(uint64_t key, int64_t i) {
  return 2.0f * ToUnitFloat(PhiloxWord(key, static_cast<uint64_t>(i))) - 1.0f;
}

// Rows with positive state, and their gradients.
struct Table {
  Table(const OptimizerConfig& rule, int64_t dim_of_row, int64_t count)
      : dim(dim_of_row), stride(dim + StateFloats(rule, dim)) {
    for (int64_t i = 0; i < count * stride; ++i) {
      const float value = Draw(1, i);
      numbers.push_back(i % stride < dim ? value : std::abs(value));
    }
    for (int64_t i = 0; i < count * dim; ++i) gradients.push_back(Draw(2, i));
    for (int64_t i = 0; i < count; ++i) counts.push_back(1 + static_cast<uint32_t>(i * i) % 700);
  }
  // All rows, from the last to the first.
  void Update(InstructionSet set, const OptimizerConfig& rule, int64_t step) {
    std::vector<float*> rows;
    for (size_t i = counts.size(); i-- > 0;) {
      rows.push_back(numbers.data() + static_cast<int64_t>(i) * stride);
    }
    ApplyRows(set, rule, step,
              {.dim = dim, .rows = rows, .gradients = gradients.data(), .counts = counts});
  }
  int64_t dim;
  int64_t stride;
  std::vector<float> numbers;
  std::vector<float> gradients;
  std::vector<uint32_t> counts;
};

TEST_CASE("RowLoops: each row is updated as the reference updates a range", "[server][optimizer]") {
  constexpr int64_t kStep = 5;
  for (const OptimizerConfig& rule : Rules()) {
    for (const int64_t dim : {1, 3, 16, 37}) {
      CAPTURE(static_cast<int>(rule.kind), dim);
      Table table(rule, dim, 150);  // More than are taken at a time.
      Table expected = table;
      table.Update(BestInstructionSet(), rule, kStep);
      for (size_t i = 0; i < table.counts.size(); ++i) {
        const size_t row = table.counts.size() - 1 - i;
        float* const w = expected.numbers.data() + static_cast<int64_t>(row) * expected.stride;
        std::vector<float*> state;
        for (int64_t at = dim; at < expected.stride; at += dim) state.push_back(w + at);
        // The rate is constant here: Adam's step is then that of the row's own count.
        const int64_t step = CountsUpdates(rule) ? expected.counts[i] - 1 : kStep;
        ApplyReference(rule, step, dim, w,
                       expected.gradients.data() + static_cast<int64_t>(i) * dim, state, w);
      }
      CHECK(table.numbers == expected.numbers);
    }
  }
}

TEST_CASE("RowLoops: every instruction set gives the same bits", "[server][optimizer]") {
  std::vector<OptimizerConfig> rules = Rules();
  rules.push_back(rules[3]);
  rules.back().row_wise = true;
  for (const OptimizerConfig& rule : rules) {
    for (const int64_t dim : {1, 7, 8, 64, 100}) {
      CAPTURE(static_cast<int>(rule.kind), rule.row_wise, dim);
      Table base(rule, dim, 20);
      base.Update(InstructionSet::kBaseline, rule, 0);
      for (const InstructionSet set : {InstructionSet::kAvx2, InstructionSet::kAvx512}) {
        if (!IsSupported(set)) continue;
        Table table(rule, dim, 20);
        table.Update(set, rule, 0);
        CHECK(table.numbers == base.numbers);
      }
    }
  }
}

TEST_CASE("RowLoops: row-wise Adagrad accumulates the mean square of a row's gradient",
          "[server][optimizer]") {
  const OptimizerConfig rule{
      .kind = Kind::kAdagrad, .learning_rate = 0.5f, .epsilon = 0.0f, .row_wise = true};
  REQUIRE(StateFloats(rule, 4) == 1);
  std::vector<float> row = {1.0f, 2.0f, 3.0f, 4.0f, /*accumulator:*/ 1.5f};
  const std::vector<float> gradient = {1.0f, -1.0f, 4.0f, 2.0f};  // Mean square 5.5.
  std::vector<float*> rows = {row.data()};
  for (const InstructionSet set :
       {InstructionSet::kBaseline, InstructionSet::kAvx2, InstructionSet::kAvx512}) {
    if (!IsSupported(set)) continue;
    row = {1.0f, 2.0f, 3.0f, 4.0f, 1.5f};
    ApplyRows(set, rule, 0, {.dim = 4, .rows = rows, .gradients = gradient.data()});
    CHECK(row[4] == 7.0f);
    for (size_t j = 0; j < 4; ++j) {
      CHECK(row[j] == Approx(static_cast<double>(j + 1) - 0.5 * gradient[j] / std::sqrt(7.0)));
    }
  }
}

TEST_CASE("RowLoops: a rule whose numbers depend on the update counts the updates of each row",
          "[server][optimizer]") {
  for (const kernels::cuda::UpdateRuleTraits& traits : kernels::cuda::kUpdateRules) {
    if (traits.rule == Kind::kPlugin) continue;  // It says so itself.
    const OptimizerConfig rule{.kind = traits.rule, .learning_rate = 0.05f};  // It is constant.
    const StepScalars first = MakeStepScalars(rule, 0);
    const StepScalars later = MakeStepScalars(rule, 9);
    INFO("rule " << static_cast<int>(traits.rule) << ' ' << traits.name);
    CHECK(CountsUpdates(rule) == (std::memcmp(&first, &later, sizeof(first)) != 0));
  }
}

TEST_CASE("RowLoops: a row that is not named stays as it is", "[server][optimizer]") {
  for (const OptimizerConfig& rule : Rules()) {
    Table table(rule, 8, 3);
    const Table before = table;
    std::vector<float*> rows = {table.numbers.data() + table.stride};  // The second alone.
    ApplyRows(
        BestInstructionSet(), rule, 0,
        {.dim = 8, .rows = rows, .gradients = table.gradients.data(), .counts = table.counts});
    for (int64_t i = 0; i < 3 * table.stride; ++i) {
      const bool named = i / table.stride == 1;
      const auto at = static_cast<size_t>(i);
      if (!named) CHECK(table.numbers[at] == before.numbers[at]);
      if (named && i % table.stride < 8) CHECK(table.numbers[at] != before.numbers[at]);
    }
  }
}

}  // namespace
}  // namespace capstan::server::row_loops_test
