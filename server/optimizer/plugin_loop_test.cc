// Tests that a rule of a plugin gives the same bits as the server's own rule with this arithmetic:
// the rules of plugin/testing/own_rules.c and those of element_rules.h.
#include "server/optimizer/plugin_loop.h"

#include <catch2/catch.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "common/random/philox.h"
#include "common/testing/status_matchers.h"
#include "common/types/instruction_set.h"
#include "server/optimizer/optimizer.h"
#include "server/optimizer/plugin/load_plugin.h"
#include "server/optimizer/plugin/plugin_rules.h"
#include "server/optimizer/row_loops.h"
#include "server/optimizer/update_loops.h"

namespace capstan::server::plugin_loop_test {
namespace {

using Kind = OptimizerKind;

const PluginRules& OwnRules() {
  static const PluginRules& rules = *[] {
    auto* loaded = new PluginRules;
    REQUIRE_OK(LoadPlugin("server/optimizer/plugin/own_rules.so", loaded));
    return loaded;
  }();
  return rules;
}

struct Pair {
  OptimizerConfig own;
  OptimizerConfig plugin;
};

// The server's rule and the plugin's, both with the same settings: bare, clipped, with decay, and
// on a schedule.
std::vector<Pair> Pairs() {
  const std::vector<std::pair<OptimizerConfig, std::string>> rules = {
      {{.kind = Kind::kMomentum}, "momentum"},
      {{.kind = Kind::kAdagrad, .epsilon = 1e-10f, .initial_accumulator = 0.5f},
       "adagrad_from_half"},
      {{.kind = Kind::kAdam}, "adam"},
  };
  std::vector<Pair> pairs;
  for (const auto& [rule, name] : rules) {
    for (int with = 0; with < 8; ++with) {
      OptimizerConfig own = rule;
      own.learning_rate = 0.05f;
      if (with & 1) own.clip_value = 0.25f;
      if (with & 2) own.weight_decay = 0.01f;
      if (with & 4) {
        own.schedule = {.kind = ScheduleKind::kCosine, .cosine_steps = 4, .warmup_steps = 2};
      }
      OptimizerConfig plugin = own;
      plugin.kind = Kind::kPlugin;
      plugin.plugin_rule = OwnRules().Find(name)->rule;
      const double* const numbers = plugin.plugin_rule->default_numbers;
      plugin.plugin_numbers.assign(numbers, numbers + plugin.plugin_rule->number_count);
      pairs.push_back({own, plugin});
    }
  }
  return pairs;
}

std::vector<float> Draw(int64_t n, uint64_t key) {
  std::vector<float> values;
  for (int64_t i = 0; i < n; ++i) {
    values.push_back(2.0f * ToUnitFloat(PhiloxWord(key, static_cast<uint64_t>(i))) - 1.0f);
  }
  return values;
}

std::vector<InstructionSet> SupportedSets() {
  std::vector<InstructionSet> sets;
  for (const InstructionSet set :
       {InstructionSet::kBaseline, InstructionSet::kAvx2, InstructionSet::kAvx512}) {
    if (IsSupported(set)) sets.push_back(set);
  }
  return sets;
}

// Weights and state after four updates of n elements, the last two apart from the weights.
std::vector<std::vector<float>> AfterUpdates(InstructionSet set, const OptimizerConfig& config,
                                             int64_t n) {
  std::vector<std::vector<float>> arrays = {Draw(n, 1)};
  for (int slot = 0; slot < StateSlots(config); ++slot) {
    arrays.emplace_back(static_cast<size_t>(n), InitialState(config, slot));
  }
  for (int64_t step = 0; step < 4; ++step) {
    const std::vector<float> gradient = Draw(n, 2 + static_cast<uint64_t>(step));
    std::vector<float*> state;
    for (size_t slot = 1; slot < arrays.size(); ++slot) state.push_back(arrays[slot].data());
    std::vector<float> apart(static_cast<size_t>(n));
    float* const out = step < 2 ? arrays[0].data() : apart.data();
    ApplyWith(set, config, step, n, arrays[0].data(), gradient.data(), absl::MakeSpan(state), out);
    if (step >= 2) arrays[0] = apart;
  }
  return arrays;
}

TEST_CASE("Plugin loop: a plugin's rule gives the bits of the server's own on dense ranges",
          "[server][optimizer]") {
  for (const Pair& pair : Pairs()) {
    CHECK(StateSlots(pair.plugin) == StateSlots(pair.own));
    for (const InstructionSet set : SupportedSets()) {
      for (const int64_t n : {0, 1, 7, 2048, 2049, 10000}) {
        CAPTURE(static_cast<int>(pair.own.kind), static_cast<int>(set), n);
        CHECK(AfterUpdates(set, pair.plugin, n) == AfterUpdates(set, pair.own, n));
      }
    }
  }
}

// All numbers of 70 rows of `dim` after three updates.
std::vector<float> RowsAfterUpdates(InstructionSet set, const OptimizerConfig& rule, int64_t dim) {
  constexpr int64_t kRows = 70;
  const int64_t stride = dim + StateFloats(rule, dim);
  std::vector<float> numbers = Draw(kRows * stride, 1);
  for (float& number : numbers) number = number * number;  // No state is below 0.
  for (int64_t step = 0; step < 3; ++step) {
    const std::vector<float> gradients = Draw(kRows * dim, 2 + static_cast<uint64_t>(step));
    std::vector<float*> rows;
    std::vector<uint32_t> counts;
    for (int64_t i = 0; i < kRows; ++i) {
      rows.push_back(numbers.data() + i * stride);
      counts.push_back(static_cast<uint32_t>(1 + step + i % 5));
    }
    ApplyRows(set, rule, step,
              {.dim = dim, .rows = rows, .gradients = gradients.data(), .counts = counts});
  }
  return numbers;
}

TEST_CASE("Plugin loop: a plugin's rule gives the bits of the server's own on rows",
          "[server][optimizer]") {
  for (const Pair& pair : Pairs()) {
    CHECK(CountsUpdates(pair.plugin) == CountsUpdates(pair.own));
    for (const InstructionSet set : SupportedSets()) {
      for (const int64_t dim : {1, 3, 16, 37}) {
        CAPTURE(static_cast<int>(pair.own.kind), static_cast<int>(set), dim);
        CHECK(StateFloats(pair.plugin, dim) == StateFloats(pair.own, dim));
        CHECK(RowsAfterUpdates(set, pair.plugin, dim) == RowsAfterUpdates(set, pair.own, dim));
      }
    }
  }
}

}  // namespace
}  // namespace capstan::server::plugin_loop_test
