#include "server/optimizer/row_loops.h"

#include <array>
#include <cmath>
#include <cstddef>

#include "kernels/cuda/element_rules.h"
#include "server/optimizer/optimizer.h"
#include "server/optimizer/plugin_loop.h"
#include "server/optimizer/step_scalars.h"
#include "server/optimizer/update_rule.h"

namespace capstan::server {
namespace {

using kernels::cuda::TraitsOf;
using kernels::cuda::WithRule;
using update_rule::Arrays;
using update_rule::Gradient;
using update_rule::Loop;
using update_rule::RunFor;
using Rule = OptimizerKind;

// A batch of rows. `lr` and `root_scale` have one number per row for a rule that counts updates;
// they are null for other rules.
struct Rows {
  int64_t dim;
  absl::Span<float* const> rows;
  const UnalignedFloat* gradients;
  const float* lr;
  const float* root_scale;
  int slots;
};

template <Rule kRule, bool kDecay>
struct RowLoop {
  static CAPSTAN_INLINE void Run(StepScalars c, const Rows& r) {
    const int64_t s0 = r.slots > 0 ? r.dim : 0;
    const int64_t s1 = r.slots > 1 ? 2 * r.dim : 0;
    const int64_t s2 = r.slots > 2 ? 3 * r.dim : 0;
    for (size_t i = 0; i < r.rows.size(); ++i) {
      if constexpr (TraitsOf(kRule).counts_updates) {
        c.lr = r.lr[i];
        c.root_scale = r.root_scale[i];
      }
      float* const w = r.rows[i];
      const UnalignedFloat* const g = r.gradients + static_cast<int64_t>(i) * r.dim;
      Loop<kRule, kDecay>(c, Arrays{r.dim, w, g, w + s0, w + s1, w + s2, w});
    }
  }
};

// Sums in eight lanes, which are added in a fixed order with every instruction set.
template <bool kDecay>
CAPSTAN_INLINE void RowWiseAdagrad(const StepScalars& c, int64_t dim, float* w,
                                   const UnalignedFloat* g) {
  constexpr int64_t kLanes = 8;
  std::array<float, kLanes> lanes{};
  for (int64_t j = 0; j < dim; ++j) {
    const float each = Gradient<kDecay>(c, w[j], g[j]);
    lanes[static_cast<size_t>(j % kLanes)] += each * each;
  }
  const float sum = ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) +
                    ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
  const float s = w[dim] + sum / static_cast<float>(dim);
  w[dim] = s;
  const float root = std::sqrt(s) + c.epsilon;
  CAPSTAN_INDEPENDENT_ITERATIONS
  for (int64_t j = 0; j < dim; ++j) {
    w[j] = w[j] - (c.lr * Gradient<kDecay>(c, w[j], g[j])) / root;
  }
}

template <bool kDecay>
struct RowWiseLoop {
  static CAPSTAN_INLINE void Run(const StepScalars& c, const Rows& r) {
    for (size_t i = 0; i < r.rows.size(); ++i) {
      RowWiseAdagrad<kDecay>(c, r.dim, r.rows[i], r.gradients + static_cast<int64_t>(i) * r.dim);
    }
  }
};

template <Rule kRule>
void RunRule(InstructionSet set, const StepScalars& c, const Rows& r) {
  if (c.weight_decay != 0.0f) return RunFor<RowLoop<kRule, true>>(set, c, r);
  return RunFor<RowLoop<kRule, false>>(set, c, r);
}

void RunRowWise(InstructionSet set, const StepScalars& c, const Rows& r) {
  if (c.weight_decay != 0.0f) return RunFor<RowWiseLoop<true>>(set, c, r);
  return RunFor<RowWiseLoop<false>>(set, c, r);
}

// This many rows are updated at a time, so that their rates and scales fit on the stack.
constexpr size_t kRowsMax = 64;

// Runs a rule that counts updates, with the count of each row.
template <Rule kRule>
void RunCounted(InstructionSet set, const OptimizerConfig& rule, const StepScalars& c, double lr,
                const RowUpdates& updates, Rows rows) {
  std::array<float, kRowsMax> rates;
  std::array<float, kRowsMax> scales;
  rows.lr = rates.data();
  rows.root_scale = scales.data();
  for (size_t begin = 0; begin < updates.rows.size(); begin += kRowsMax) {
    rows.rows = updates.rows.subspan(begin, kRowsMax);
    rows.gradients = updates.gradients + static_cast<int64_t>(begin) * updates.dim;
    for (size_t i = 0; i < rows.rows.size(); ++i) {
      const AdamBias bias = BiasOfAdam(rule, updates.counts[begin + i]);
      rates[i] = static_cast<float>(lr / bias.first);
      scales[i] = bias.root_scale;
    }
    RunRule<kRule>(set, c, rows);
  }
}

void RunPlugin(InstructionSet set, const OptimizerConfig& rule, int64_t step,
               const RowUpdates& updates) {
  PluginUpdate update = MakePluginUpdate(rule, step);
  const auto slots = static_cast<size_t>(StateSlots(rule));
  std::array<float*, CAPSTAN_RULE_STATES_MAX> state;
  for (size_t i = 0; i < updates.rows.size(); ++i) {
    float* const row = updates.rows[i];
    for (size_t slot = 0; slot < slots; ++slot) {
      state[slot] = row + static_cast<int64_t>(slot + 1) * updates.dim;
    }
    if (CountsUpdates(rule)) update.step = int64_t{updates.counts[i]} - 1;
    ApplyPluginRule(set, rule, update, updates.dim, row,
                    updates.gradients + static_cast<int64_t>(i) * updates.dim,
                    absl::MakeConstSpan(state.data(), slots), row);
  }
}

}  // namespace

int64_t StateFloats(const OptimizerConfig& rule, int64_t dim) {
  return rule.row_wise ? 1 : StateSlots(rule) * dim;
}

bool CountsUpdates(const OptimizerConfig& rule) {
  if (rule.kind == OptimizerKind::kPlugin) return rule.plugin_rule->counts_updates != 0;
  return TraitsOf(rule.kind).counts_updates;
}

void ApplyRows(InstructionSet set, const OptimizerConfig& rule, int64_t step,
               const RowUpdates& updates) {
  if (rule.kind == OptimizerKind::kPlugin) return RunPlugin(set, rule, step, updates);
  StepScalars c = MakeStepScalars(rule, step);
  // The step of a row's last update is not known: its rate is taken to have been the present one.
  c.inverse_lr_before = c.inverse_lr;
  const int slots = StateSlots(rule);
  const Rows rows = {updates.dim, updates.rows, updates.gradients, nullptr, nullptr, slots};
  if (rule.row_wise) return RunRowWise(set, c, rows);
  WithRule(RuleOf(rule), [&](auto kind) {
    if constexpr (TraitsOf(kind()).layer_wise) {
      // No row has such a rule.
    } else if constexpr (TraitsOf(kind()).counts_updates) {
      RunCounted<kind()>(set, rule, c, ScheduledLearningRate(rule, step), updates, rows);
    } else {
      RunRule<kind()>(set, c, rows);
    }
  });
}

}  // namespace capstan::server
