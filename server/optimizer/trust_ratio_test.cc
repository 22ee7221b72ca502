#include "server/optimizer/trust_ratio.h"

#include <algorithm>
#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "common/random/philox.h"
#include "common/types/instruction_set.h"
#include "server/optimizer/optimizer.h"
#include "server/optimizer/testing/reference.h"
#include "server/optimizer/update_loops.h"

namespace capstan::server::trust_ratio_test {
namespace {

OptimizerConfig Rule(OptimizerKind kind, float decay = 0.0f, float clip = 0.0f) {
  OptimizerConfig config;
  config.kind = kind;
  config.learning_rate = 0.5f;
  config.weight_decay = decay;
  config.clip_value = clip;
  config.trust_coefficient = 0.25f;
  return config;
}

std::vector<OptimizerConfig> AllRules() {
  std::vector<OptimizerConfig> all;
  for (const OptimizerKind kind : {OptimizerKind::kLars, OptimizerKind::kLamb}) {
    for (const float decay : {0.0f, 0.01f}) {
      for (const float clip : {0.0f, 0.25f}) all.push_back(Rule(kind, decay, clip));
    }
  }
  return all;
}

std::vector<float> Draw(int64_t n, uint64_t key) {
  std::vector<float> values;
  for (int64_t i = 0; i < n; ++i) {
    values.push_back(2.0f * ToUnitFloat(PhiloxWord(key, static_cast<uint64_t>(i))) - 1.0f);
  }
  return values;
}

// A tensor and its gradient.
struct Tensor {
  std::vector<float> w, g;
  std::vector<std::vector<float>> state;

  Tensor(const OptimizerConfig& config, std::vector<float> weights, std::vector<float> gradient)
      : w(std::move(weights)), g(std::move(gradient)) {
    for (int slot = 0; slot < StateSlots(config); ++slot) state.emplace_back(w.size(), 0.0f);
  }

  int64_t size() const { return static_cast<int64_t>(w.size()); }
  std::vector<float*> StateAt(int64_t begin) {
    std::vector<float*> pointers;
    for (std::vector<float>& slot : state) pointers.push_back(slot.data() + begin);
    return pointers;
  }
  // The bits of all numbers; every NaN is the same one.
  std::vector<uint32_t> Bits() const {
    std::vector<uint32_t> bits;
    const auto append = [&bits](const std::vector<float>& values) {
      for (const float value : values) {
        bits.push_back(std::isnan(value) ? 0x7fc00000u : std::bit_cast<uint32_t>(value));
      }
    };
    append(w);
    for (const std::vector<float>& slot : state) append(slot);
    return bits;
  }
};

// Updates the tensor in blocks of `block` elements, and returns its trust ratio.
double Update(OptimizerConfig config, InstructionSet set, int64_t step, int64_t block, Tensor* t) {
  const OptimizerConfig rule = config;
  TrustRatio ratio(rule, step, set);
  for (int64_t begin = 0; begin < t->size(); begin += block) {
    ratio.Add(std::min(block, t->size() - begin), t->w.data() + begin, t->g.data() + begin,
              t->StateAt(begin));
  }
  config.learning_rate_factor *= ratio.Value();
  for (int64_t begin = 0; begin < t->size(); begin += block) {
    ApplyWith(set, config, step, std::min(block, t->size() - begin), t->w.data() + begin,
              t->g.data() + begin, t->StateAt(begin), t->w.data() + begin);
  }
  return ratio.Value();
}

void UpdateByReference(const OptimizerConfig& config, int64_t step, Tensor* t) {
  ApplyReference(config, step, t->size(), t->w.data(), t->g.data(), t->StateAt(0), t->w.data());
}

TEST_CASE("Trust ratio: each compiled form and block size gives the reference's bits",
          "[server][optimizer]") {
  for (const OptimizerConfig& config : AllRules()) {
    for (const InstructionSet set :
         {InstructionSet::kBaseline, InstructionSet::kAvx2, InstructionSet::kAvx512}) {
      if (!IsSupported(set)) continue;
      for (const int64_t n : {1, 15, 16, 17, 511, 513, 5000}) {
        for (const int64_t block : {int64_t{16}, int64_t{4096}, n}) {
          INFO(n << " elements in blocks of " << block << ", set " << static_cast<int>(set));
          Tensor fast(config, Draw(n, 1), Draw(n, 2));
          Tensor slow = fast;
          if (block == n || block % TrustRatio::kLanes == 0) {
            for (int64_t step = 0; step < 3; ++step) {
              Update(config, set, step, block, &fast);
              UpdateByReference(config, step, &slow);
            }
          }
          CHECK(fast.Bits() == slow.Bits());
        }
      }
    }
  }
}

TEST_CASE("Trust ratio: by hand", "[server][optimizer]") {
  const auto ratio_of = [](const OptimizerConfig& config, std::vector<float> w,
                           std::vector<float> g) {
    Tensor t(config, std::move(w), std::move(g));
    return Update(config, InstructionSet::kBaseline, 0, t.size(), &t);
  };
  const OptimizerConfig lars = Rule(OptimizerKind::kLars);
  CHECK(ratio_of(lars, {3, 4}, {6, -8}) == 0.25 * 5 / 10);
  CHECK(ratio_of(Rule(OptimizerKind::kLars, 2.0f), {3, 4}, {6, -8}) == 0.25 * 5 / (10 + 2.0 * 5));
  CHECK(ratio_of(Rule(OptimizerKind::kLars, 0.0f, 0.5f), {3, 4}, {0.25f, 0}) == 0.25 * 5 / 0.25);
  // Without a norm there is no ratio.
  CHECK(ratio_of(lars, {0, 0}, {6, -8}) == 1.0);
  CHECK(ratio_of(lars, {3, 4}, {0, 0}) == 1.0);
  OptimizerConfig bias = lars;
  bias.has_trust_ratio = false;
  CHECK(ratio_of(bias, {3, 4}, {6, -8}) == 1.0);
  // The first step of Adam is a sign, so that |u| is the root of 2.
  OptimizerConfig lamb = Rule(OptimizerKind::kLamb);
  lamb.epsilon = 1e-12f;
  CHECK(ratio_of(lamb, {3, 4}, {6, -8}) == Approx(5 / std::sqrt(2.0)));
  lamb.weight_decay = 1.0f;  // u = (1 + 3, -1 + 4).
  CHECK(ratio_of(lamb, {3, 4}, {6, -8}) == Approx(5.0 / 5));
}

TEST_CASE("Trust ratio: numbers whose squares no fp32 holds have a norm", "[server][optimizer]") {
  const OptimizerConfig config = Rule(OptimizerKind::kLars);
  const float largest = std::numeric_limits<float>::max();
  const float least = std::numeric_limits<float>::denorm_min();
  Tensor t(config, {largest, largest}, {largest, largest});
  CHECK(Update(config, InstructionSet::kBaseline, 0, 2, &t) == Approx(0.25));
  Tensor tiny(config, {least, least}, {least, least});
  CHECK(Update(config, InstructionSet::kBaseline, 0, 2, &tiny) == Approx(0.25));
}

TEST_CASE("Trust ratio: one NaN makes the whole tensor NaN", "[server][optimizer]") {
  for (const OptimizerConfig& config : AllRules()) {
    Tensor t(config, Draw(100, 1), Draw(100, 2));
    t.g[33] = std::numeric_limits<float>::quiet_NaN();
    Update(config, BestInstructionSet(), 0, 100, &t);
    CHECK(std::all_of(t.w.begin(), t.w.end(), [](float w) { return std::isnan(w); }));
  }
}

}  // namespace
}  // namespace capstan::server::trust_ratio_test
