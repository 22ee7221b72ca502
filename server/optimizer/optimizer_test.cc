#include "server/optimizer/optimizer.h"

#include <algorithm>
#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "common/random/philox.h"
#include "common/types/instruction_set.h"
#include "server/optimizer/step_scalars.h"
#include "server/optimizer/testing/reference.h"
#include "server/optimizer/update_loops.h"

namespace capstan::server::optimizer_test {
namespace {

struct NamedConfig {
  std::string name;
  OptimizerConfig config;
};

// Every rule, each bare, with weight decay, with clipping, and with both.
std::vector<NamedConfig> AllConfigs() {
  using Kind = OptimizerKind;
  std::vector<NamedConfig> rules = {
      {"sgd", {.kind = Kind::kSgd}},
      {"momentum", {.kind = Kind::kMomentum}},
      {"nesterov", {.kind = Kind::kNesterov}},
      {"adagrad", {.kind = Kind::kAdagrad, .epsilon = 1e-10f, .initial_accumulator = 0.1f}},
      {"rmsprop", {.kind = Kind::kRmsProp, .momentum = 0.0f}},
      {"rmsprop with momentum", {.kind = Kind::kRmsProp, .momentum = 0.9f}},
      {"adam", {.kind = Kind::kAdam}},
      {"adamw", {.kind = Kind::kAdamW}},
      {"ftrl", {.kind = Kind::kFtrl}},
      {"ftrl with l1 and l2", {.kind = Kind::kFtrl, .beta = 0.5f, .l1 = 0.75f, .l2 = 0.25f}},
      {"ftrl on a schedule",
       {.kind = Kind::kFtrl,
        .schedule = {.kind = ScheduleKind::kCosine, .cosine_steps = 3, .warmup_steps = 2},
        .beta = 0.0f,
        .l1 = 0.125f}},
      {"adadelta", {.kind = Kind::kAdadelta, .epsilon = 1e-6f}},
      {"amsgrad", {.kind = Kind::kAmsGrad, .beta2 = 0.5f}},
      {"lion", {.kind = Kind::kLion, .beta2 = 0.99f}},
      {"moving average", {.kind = Kind::kMovingAverage, .momentum = 0.1f}},
  };
  std::vector<NamedConfig> all;
  for (const NamedConfig& rule : rules) {
    for (const float decay : {0.0f, 0.01f}) {
      for (const float clip : {0.0f, 0.5f}) {
        NamedConfig next = rule;
        next.config.learning_rate = 0.05f;
        next.config.weight_decay = decay;
        next.config.clip_value = clip;
        next.name += " decay " + std::to_string(decay) + " clip " + std::to_string(clip);
        all.push_back(next);
      }
    }
  }
  return all;
}

// Weights, gradient and state of n elements; drawn from `key`.
struct Tensors {
  std::vector<float> w, g;
  std::vector<std::vector<float>> state;

  Tensors(const OptimizerConfig& config, int64_t n, uint64_t key) {
    w = Draw(n, MixKey(key, 0), -1.0f);
    g = Draw(n, MixKey(key, 1), -1.0f);
    for (int slot = 0; slot < StateSlots(config); ++slot) {
      state.push_back(Draw(n, MixKey(key, 2 + slot), 0.0f));  // Second moments are >= 0.
    }
  }

  static std::vector<float> Draw(int64_t n, uint64_t key, float low) {
    std::vector<float> values(static_cast<size_t>(n));
    for (int64_t i = 0; i < n; ++i) {
      const float unit = ToUnitFloat(PhiloxWord(key, static_cast<uint64_t>(i)));
      values[static_cast<size_t>(i)] = low + (1.0f - low) * unit;
    }
    return values;
  }

  std::vector<float*> StateAt(int64_t begin) {
    std::vector<float*> pointers;
    for (std::vector<float>& slot : state) pointers.push_back(slot.data() + begin);
    return pointers;
  }
};

// Equal bits; any NaN equals any NaN (the header leaves payload and sign open).
bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i]) && std::isnan(b[i])) continue;
    if (std::bit_cast<uint32_t>(a[i]) != std::bit_cast<uint32_t>(b[i])) return false;
  }
  return true;
}

bool SameState(const Tensors& a, const Tensors& b) {
  if (a.state.size() != b.state.size()) return false;
  for (size_t slot = 0; slot < a.state.size(); ++slot) {
    if (!SameBits(a.state[slot], b.state[slot])) return false;
  }
  return true;
}

int64_t Size(const Tensors& tensors) { return static_cast<int64_t>(tensors.w.size()); }

void UpdateByReference(const OptimizerConfig& config, int64_t step, Tensors* t) {
  std::vector<float*> state = t->StateAt(0);
  ApplyReference(config, step, Size(*t), t->w.data(), t->g.data(), absl::MakeSpan(state),
                 t->w.data());
}

std::vector<InstructionSet> SupportedSets() {
  std::vector<InstructionSet> sets;
  for (const InstructionSet set :
       {InstructionSet::kBaseline, InstructionSet::kAvx2, InstructionSet::kAvx512}) {
    if (IsSupported(set)) sets.push_back(set);
  }
  return sets;
}

// Runs `steps` updates in place with the form for `set` and with the reference, and compares.
void CheckAgainstReference(const NamedConfig& named, InstructionSet set, const Tensors& start,
                           int64_t steps) {
  INFO(named.name << ", " << start.w.size() << " elements, set " << static_cast<int>(set));
  Tensors fast = start;
  Tensors slow = start;
  for (int64_t step = 0; step < steps; ++step) {
    std::vector<float*> state = fast.StateAt(0);
    ApplyWith(set, named.config, step, Size(fast), fast.w.data(), fast.g.data(),
              absl::MakeSpan(state), fast.w.data());
    UpdateByReference(named.config, step, &slow);
  }
  CHECK(SameBits(fast.w, slow.w));
  CHECK(SameState(fast, slow));
}

TEST_CASE("Optimizer: each compiled form gives the reference's bits for every rule and size",
          "[server][optimizer]") {
  for (const NamedConfig& named : AllConfigs()) {
    for (const InstructionSet set : SupportedSets()) {
      for (const int64_t n : {0, 1, 15, 16, 17, 1000}) {
        CheckAgainstReference(named, set, Tensors(named.config, n, 7), 4);
      }
    }
  }
}

TEST_CASE("Optimizer: NaN, infinite, denormal and huge values give the reference's bits",
          "[server][optimizer]") {
  using Limits = std::numeric_limits<float>;
  const std::vector<float> special = {0.0f,
                                      -0.0f,
                                      1.0f,
                                      -1.0f,
                                      Limits::denorm_min(),
                                      -Limits::denorm_min(),
                                      Limits::min() / 2,
                                      Limits::max(),
                                      -Limits::max(),
                                      Limits::infinity(),
                                      -Limits::infinity(),
                                      Limits::quiet_NaN()};
  for (const NamedConfig& named : AllConfigs()) {
    Tensors start(named.config, 0, 7);
    for (const float w : special) {  // All pairs (w, g); the state goes through the list as well.
      for (const float g : special) {
        start.w.push_back(w);
        start.g.push_back(g);
        for (size_t slot = 0; slot < start.state.size(); ++slot) {
          start.state[slot].push_back(special[(start.w.size() * (5 + 2 * slot)) % special.size()]);
        }
      }
    }
    for (const InstructionSet set : SupportedSets()) CheckAgainstReference(named, set, start, 3);
  }
}

// Denormals cost a processor up to 40 times as much, and most decays round the smallest to itself.
TEST_CASE("Optimizer: state that decays without gradients becomes 0, and no denormal",
          "[server][optimizer]") {
  using Kind = OptimizerKind;
  for (const NamedConfig& named : AllConfigs()) {
    const Kind kind = named.config.kind;
    if (named.config.weight_decay != 0.0f || kind == Kind::kAdagrad || kind == Kind::kFtrl)
      continue;
    for (const InstructionSet set : SupportedSets()) {
      INFO(named.name << ", set " << static_cast<int>(set));
      Tensors t(named.config, 40, 3);
      std::fill(t.g.begin(), t.g.end(), 0.0f);
      const size_t decaying =
          kind == Kind::kAmsGrad ? 2 : t.state.size();  // The third is a maximum.
      for (size_t slot = 0; slot < decaying; ++slot) {
        std::fill(t.state[slot].begin(), t.state[slot].end(), std::numeric_limits<float>::min());
      }
      for (int64_t step = 0; step < 10; ++step) {
        std::vector<float*> state = t.StateAt(0);
        ApplyWith(set, named.config, step, Size(t), t.w.data(), t.g.data(), absl::MakeSpan(state),
                  t.w.data());
      }
      for (size_t slot = 0; slot < decaying; ++slot) {
        CHECK(t.state[slot] == std::vector<float>(40, 0.0f));
      }
    }
  }
}

TEST_CASE("Optimizer: a NaN in the gradient reaches the weight, clipped or not",
          "[server][optimizer]") {
  for (const NamedConfig& named : AllConfigs()) {
    INFO(named.name);
    Tensors t(named.config, 40, 3);
    t.g[33] = std::numeric_limits<float>::quiet_NaN();
    std::vector<float*> state = t.StateAt(0);
    Apply(named.config, 0, 40, t.w.data(), t.g.data(), absl::MakeSpan(state), t.w.data());
    for (size_t i = 0; i < t.w.size(); ++i) CHECK(std::isnan(t.w[i]) == (i == 33));
  }
}

TEST_CASE("Optimizer: any cut of the range gives the bits of the whole", "[server][optimizer]") {
  constexpr int64_t kSize = 1000;
  for (const NamedConfig& named : AllConfigs()) {
    INFO(named.name);
    Tensors whole(named.config, kSize, 11);
    Tensors cut = whole;
    UpdateByReference(named.config, 5, &whole);
    int64_t begin = 0;
    for (uint64_t draw = 0; begin < kSize; ++draw) {
      const int64_t n = std::min<int64_t>(PhiloxWord(13, draw) % 70, kSize - begin);
      std::vector<float*> state = cut.StateAt(begin);
      Apply(named.config, 5, n, cut.w.data() + begin, cut.g.data() + begin, absl::MakeSpan(state),
            cut.w.data() + begin);
      begin += n;
    }
    CHECK(SameBits(whole.w, cut.w));
    CHECK(SameState(whole, cut));
  }
}

TEST_CASE("Optimizer: out of place gives the bits of in place and leaves the input alone",
          "[server][optimizer]") {
  for (const NamedConfig& named : AllConfigs()) {
    INFO(named.name);
    Tensors in_place(named.config, 1000, 17);
    Tensors apart = in_place;
    const std::vector<float> before = apart.w;
    std::vector<float> out(before.size(), -7.0f);
    std::vector<float*> state = apart.StateAt(0);
    Apply(named.config, 2, 1000, apart.w.data(), apart.g.data(), absl::MakeSpan(state), out.data());
    UpdateByReference(named.config, 2, &in_place);
    CHECK(SameBits(out, in_place.w));
    CHECK(SameState(apart, in_place));
    CHECK(SameBits(apart.w, before));
  }
}

TEST_CASE("Optimizer: nothing outside the range is written", "[server][optimizer]") {
  for (const NamedConfig& named : AllConfigs()) {
    INFO(named.name);
    Tensors t(named.config, 100, 19);
    const Tensors before = t;
    std::vector<float*> state = t.StateAt(20);
    Apply(named.config, 0, 37, t.w.data() + 20, t.g.data() + 20, absl::MakeSpan(state),
          t.w.data() + 20);
    for (const size_t i : {0, 19, 57, 99}) {
      CHECK(t.w[i] == before.w[i]);
      for (size_t slot = 0; slot < t.state.size(); ++slot) {
        CHECK(t.state[slot][i] == before.state[slot][i]);
      }
    }
  }
}

TEST_CASE("Optimizer: state slots and their first values", "[server][optimizer]") {
  using Kind = OptimizerKind;
  CHECK(StateSlots({.kind = Kind::kSgd}) == 0);
  CHECK(StateSlots({.kind = Kind::kMovingAverage}) == 0);
  CHECK(StateSlots({.kind = Kind::kMomentum}) == 1);
  CHECK(StateSlots({.kind = Kind::kNesterov}) == 1);
  CHECK(StateSlots({.kind = Kind::kAdagrad}) == 1);
  CHECK(StateSlots({.kind = Kind::kRmsProp, .momentum = 0.0f}) == 1);
  CHECK(StateSlots({.kind = Kind::kRmsProp, .momentum = 0.5f}) == 2);
  CHECK(StateSlots({.kind = Kind::kAdam}) == 2);
  CHECK(StateSlots({.kind = Kind::kAdamW}) == 2);
  CHECK(StateSlots({.kind = Kind::kFtrl}) == 2);
  CHECK(StateSlots({.kind = Kind::kAmsGrad}) == 3);
  CHECK(StateSlots({.kind = Kind::kAdadelta}) == 2);
  CHECK(StateSlots({.kind = Kind::kLion}) == 1);
  CHECK(InitialState({.kind = Kind::kAdagrad, .initial_accumulator = 0.5f}, 0) == 0.5f);
  CHECK(InitialState({.kind = Kind::kMomentum, .initial_accumulator = 0.5f}, 0) == 0.0f);
  CHECK(InitialState({.kind = Kind::kAdam}, 1) == 0.0f);
  CHECK(InitialState({.kind = Kind::kFtrl, .initial_accumulator = 0.5f}, 0) == 0.0f);
  CHECK(InitialState({.kind = Kind::kFtrl, .initial_accumulator = 0.5f}, 1) == 0.0f);
}

// Values that are exact in fp32, so that the expected ones are exact too.
struct HandCase {
  OptimizerConfig config;
  std::vector<float> state, state_after;
  float expected;  // From w = 1, g = 2, lr = 0.5.
};

void CheckByHand(const std::vector<HandCase>& cases) {
  for (size_t i = 0; i < cases.size(); ++i) {
    INFO("case " << i);
    HandCase c = cases[i];
    c.config.learning_rate = 0.5f;
    std::vector<float*> state;
    for (float& value : c.state) state.push_back(&value);
    const float w = 1.0f;
    const float g = 2.0f;
    float out = 0.0f;
    Apply(c.config, 0, 1, &w, &g, absl::MakeSpan(state), &out);
    CHECK(out == c.expected);
    CHECK(c.state == c.state_after);
  }
}

TEST_CASE("Optimizer: one update of each rule by hand", "[server][optimizer]") {
  using Kind = OptimizerKind;
  const std::vector<HandCase> cases = {
      {{.kind = Kind::kSgd}, {}, {}, 0.0f},
      {{.kind = Kind::kSgd, .weight_decay = 0.5f}, {}, {}, -0.25f},
      {{.kind = Kind::kSgd, .clip_value = 0.5f}, {}, {}, 0.75f},
      {{.kind = Kind::kSgd, .weight_decay = 2.0f, .clip_value = 0.5f}, {}, {}, -0.25f},
      {{.kind = Kind::kMomentum, .momentum = 0.5f}, {4.0f}, {4.0f}, -1.0f},
      {{.kind = Kind::kNesterov, .momentum = 0.5f}, {4.0f}, {4.0f}, -1.0f},
      {{.kind = Kind::kNesterov, .momentum = 0.25f}, {4.0f}, {3.0f}, -0.375f},
      {{.kind = Kind::kAdagrad, .epsilon = 1.0f}, {5.0f}, {9.0f}, 0.75f},
      {{.kind = Kind::kRmsProp, .momentum = 0.0f, .alpha = 0.5f, .epsilon = 2.0f},
       {4.0f},
       {4.0f},
       0.75f},
      {{.kind = Kind::kRmsProp, .momentum = 0.5f, .alpha = 0.5f, .epsilon = 2.0f},
       {4.0f, 3.0f},
       {4.0f, 2.0f},
       0.0f},
      {{.kind = Kind::kAdam, .beta1 = 0.5f, .beta2 = 0.75f, .epsilon = 2.0f},
       {0.0f, 0.0f},
       {1.0f, 1.0f},
       0.75f},
      {{.kind = Kind::kAdamW, .weight_decay = 1.0f, .beta1 = 0.5f, .beta2 = 0.75f, .epsilon = 2.0f},
       {0.0f, 0.0f},
       {1.0f, 1.0f},
       0.25f},
      // The first gradient: w stays the centre, 1 / rate = (1 + 2) / 0.5 = 6.
      {{.kind = Kind::kFtrl}, {0.0f, 0.0f}, {-4.0f, 4.0f}, 4.0f / 6.0f},
      // sigma = (6 + 2.5) / 0.5 - (6 + 1.5) / 0.5 = 2; 1 / rate = 17.
      {{.kind = Kind::kFtrl, .beta = 6.0f, .l1 = 7.0f, .l2 = 3.0f},
       {27.0f, 2.25f},
       {27.0f, 6.25f},
       -1.0f},
      {{.kind = Kind::kFtrl, .beta = 6.0f, .l1 = 7.0f, .l2 = 3.0f},
       {-27.0f, 2.25f},
       {-27.0f, 6.25f},
       1.0f},
      {{.kind = Kind::kFtrl, .beta = 6.0f, .l1 = 27.0f}, {27.0f, 2.25f}, {27.0f, 6.25f}, 0.0f},
      {{.kind = Kind::kMovingAverage, .weight_decay = 9.0f, .clip_value = 0.5f, .momentum = 0.25f},
       {},
       {},
       1.25f},
  };
  CheckByHand(cases);
}

TEST_CASE("Optimizer: one update of AMSGrad, Adadelta and Lion by hand", "[server][optimizer]") {
  using Kind = OptimizerKind;
  CheckByHand({
      // The largest v, here of the update itself and then of one before it.
      {{.kind = Kind::kAmsGrad, .beta1 = 0.5f, .beta2 = 0.75f, .epsilon = 2.0f},
       {0.0f, 0.0f, 0.25f},
       {1.0f, 1.0f, 1.0f},
       0.75f},
      {{.kind = Kind::kAmsGrad, .beta1 = 0.5f, .beta2 = 0.75f, .epsilon = 2.0f},
       {0.0f, 0.0f, 9.0f},
       {1.0f, 1.0f, 9.0f},
       0.875f},
      // A step of sqrt(4 + 5) / sqrt(4 + 5) * 2, and of sqrt(52 + 12) / sqrt(4 + 12) * 2.
      {{.kind = Kind::kAdadelta, .epsilon = 5.0f, .rho = 0.5f}, {4.0f, 4.0f}, {4.0f, 4.0f}, 0.0f},
      {{.kind = Kind::kAdadelta, .epsilon = 12.0f, .rho = 0.5f},
       {4.0f, 52.0f},
       {4.0f, 34.0f},
       -1.0f},
      // The sign is that of m and g mixed by beta1; m is mixed by beta2.
      {{.kind = Kind::kLion, .beta1 = 0.5f, .beta2 = 0.75f}, {-6.0f}, {-4.0f}, 1.5f},
      {{.kind = Kind::kLion, .beta1 = 0.5f, .beta2 = 0.75f}, {-2.0f}, {-1.0f}, 1.0f},
      {{.kind = Kind::kLion, .weight_decay = 1.0f, .beta1 = 0.25f, .beta2 = 0.75f},
       {-2.0f},
       {-1.0f},
       0.0f},
  });
}

float LearningRate(const OptimizerConfig& config, int64_t step) {
  return static_cast<float>(ScheduledLearningRate(config, step));
}

TEST_CASE("Schedule: constant, step, cosine and warm-up at their corners", "[server][optimizer]") {
  OptimizerConfig config;
  config.learning_rate = 0.5f;
  SECTION("constant") {
    CHECK(LearningRate(config, 0) == 0.5f);
    CHECK(LearningRate(config, int64_t{1} << 40) == 0.5f);
  }
  SECTION("step") {
    config.schedule = {.kind = ScheduleKind::kStep, .step_every = 10, .step_factor = 0.5f};
    CHECK(LearningRate(config, 9) == 0.5f);
    CHECK(LearningRate(config, 10) == 0.25f);
    CHECK(LearningRate(config, 29) == 0.125f);
    CHECK(LearningRate(config, int64_t{1} << 40) == 0.0f);
  }
  SECTION("cosine stays at its minimum once it is reached") {
    config.schedule = {.kind = ScheduleKind::kCosine, .cosine_steps = 100, .cosine_minimum = 0.1f};
    CHECK(LearningRate(config, 0) == 0.5f);
    CHECK(LearningRate(config, 50) == Approx(0.3f).epsilon(1e-7));
    CHECK(LearningRate(config, 100) == 0.1f);
    CHECK(LearningRate(config, 1000) == 0.1f);
  }
  SECTION("pieces") {
    config.schedule = {.kind = ScheduleKind::kPieces,
                       .pieces = std::make_shared<const std::vector<RatePiece>>(
                           std::vector<RatePiece>{{0, 1.0f}, {3, 0.5f}, {4, 0.0f}, {9, 2.0f}})};
    CHECK(LearningRate(config, 0) == 0.5f);
    CHECK(LearningRate(config, 2) == 0.5f);
    CHECK(LearningRate(config, 3) == 0.25f);
    CHECK(LearningRate(config, 8) == 0.0f);
    CHECK(LearningRate(config, int64_t{1} << 40) == 1.0f);
  }
  SECTION("warm-up reaches the full rate at its last step") {
    config.schedule.warmup_steps = 4;
    CHECK(LearningRate(config, 0) == 0.125f);
    CHECK(LearningRate(config, 2) == 0.375f);
    CHECK(LearningRate(config, 3) == 0.5f);
    CHECK(LearningRate(config, 4) == 0.5f);
  }
  SECTION("a factor multiplies all of it") {
    config.schedule = {.kind = ScheduleKind::kCosine, .cosine_steps = 100, .cosine_minimum = 0.1f};
    config.learning_rate_factor = 0.5;
    CHECK(LearningRate(config, 0) == 0.25f);
    CHECK(LearningRate(config, 1000) == 0.05f);
    config.schedule.warmup_steps = 4;
    CHECK(LearningRate(config, 0) == 0.0625f);
  }
  SECTION("warm-up counts towards the schedule that it is multiplied with") {
    config.schedule = {
        .kind = ScheduleKind::kStep, .step_every = 2, .step_factor = 0.5f, .warmup_steps = 4};
    CHECK(LearningRate(config, 1) == 0.25f);
    CHECK(LearningRate(config, 2) == 0.1875f);
    CHECK(LearningRate(config, 4) == 0.125f);
  }
}

TEST_CASE("Optimizer: Adam's corrections vanish after many updates", "[server][optimizer]") {
  OptimizerConfig config = {.kind = OptimizerKind::kAdam,
                            .learning_rate = 0.5f,
                            .beta1 = 0.5f,
                            .beta2 = 0.75f,
                            .epsilon = 2.0f};
  float m = 2.0f, v = 4.0f, w = 1.0f;
  const float g = 2.0f;
  float* const state[] = {&m, &v};
  Apply(config, int64_t{1} << 40, 1, &w, &g, absl::MakeConstSpan(state), &w);
  CHECK(w == 0.75f);
}

}  // namespace
}  // namespace capstan::server::optimizer_test
