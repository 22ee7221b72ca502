#include "server/optimizer/config/optimizer_from_proto.h"

#include <google/protobuf/text_format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include "common/job/spec/optimizer_fields.h"
#include "common/testing/status_matchers.h"
#include "kernels/cuda/element_rules.h"
#include "server/optimizer/plugin/plugin_rules.h"

namespace capstan::server::optimizer_from_proto_test {
namespace {

absl::StatusOr<OptimizerConfig> Read(const std::string& text,
                                     const PluginRules* plugins = nullptr) {
  v1::Optimizer proto;
  if (!google::protobuf::TextFormat::ParseFromString(text, &proto)) {
    return absl::InternalError("the test's own text does not parse: " + text);
  }
  return OptimizerFromProto(proto, plugins);
}

constexpr absl::StatusCode kBad = absl::StatusCode::kInvalidArgument;

TEST_CASE("OptimizerFromProto: defaults are those of the job file's comments",
          "[server][optimizer]") {
  const std::string lr = " learning_rate: 0.5";
  REQUIRE_OK_AND_ASSIGN(const OptimizerConfig sgd, Read("sgd {}" + lr));
  CHECK(sgd.kind == OptimizerKind::kSgd);
  CHECK(sgd.learning_rate == 0.5f);
  CHECK(sgd.weight_decay == 0.0f);
  CHECK(sgd.clip_value == 0.0f);
  CHECK(sgd.schedule.kind == ScheduleKind::kConstant);
  CHECK(sgd.schedule.warmup_steps == 0);
  REQUIRE_OK_AND_ASSIGN(const OptimizerConfig momentum, Read("momentum {}" + lr));
  CHECK(momentum.kind == OptimizerKind::kMomentum);
  CHECK(momentum.momentum == 0.9f);
  REQUIRE_OK_AND_ASSIGN(const OptimizerConfig nesterov, Read("nesterov {}" + lr));
  CHECK(nesterov.kind == OptimizerKind::kNesterov);
  CHECK(nesterov.momentum == 0.9f);
  REQUIRE_OK_AND_ASSIGN(const OptimizerConfig adagrad, Read("adagrad {}" + lr));
  CHECK(adagrad.kind == OptimizerKind::kAdagrad);
  CHECK(adagrad.epsilon == 1e-10f);
  CHECK(adagrad.initial_accumulator == 0.0f);
  REQUIRE_OK_AND_ASSIGN(const OptimizerConfig rmsprop, Read("rmsprop {}" + lr));
  CHECK(rmsprop.kind == OptimizerKind::kRmsProp);
  CHECK(rmsprop.alpha == 0.99f);
  CHECK(rmsprop.epsilon == 1e-8f);
  CHECK(rmsprop.momentum == 0.0f);
  for (const std::string name : {"adam", "adamw", "amsgrad"}) {
    REQUIRE_OK_AND_ASSIGN(const OptimizerConfig adam, Read(name + " {}" + lr));
    CHECK(kernels::cuda::TraitsOf(adam.kind).name == name);
    CHECK(adam.beta1 == 0.9f);
    CHECK(adam.beta2 == 0.999f);
    CHECK(adam.epsilon == 1e-8f);
  }
  REQUIRE_OK_AND_ASSIGN(const OptimizerConfig ftrl, Read("ftrl {}" + lr));
  CHECK(ftrl.kind == OptimizerKind::kFtrl);
  CHECK(ftrl.beta == 1.0f);
  CHECK(ftrl.l1 == 0.0f);
  CHECK(ftrl.l2 == 0.0f);
  REQUIRE_OK_AND_ASSIGN(const OptimizerConfig lion, Read("lion {}" + lr));
  CHECK(lion.beta1 == 0.9f);
  CHECK(lion.beta2 == 0.99f);
  REQUIRE_OK_AND_ASSIGN(const OptimizerConfig adadelta, Read("adadelta {}" + lr));
  CHECK(adadelta.rho == 0.9f);
  CHECK(adadelta.epsilon == 1e-6f);
  REQUIRE_OK_AND_ASSIGN(const OptimizerConfig lars, Read("lars {}" + lr));
  CHECK(lars.momentum == 0.9f);
  CHECK(lars.trust_coefficient == 0.001f);
  REQUIRE_OK_AND_ASSIGN(const OptimizerConfig lamb, Read("lamb {}" + lr));
  CHECK(lamb.beta1 == 0.9f);
  CHECK(lamb.beta2 == 0.999f);
  CHECK(lamb.epsilon == 1e-6f);
}

TEST_CASE("OptimizerFromProto: every optimizer of the job file has a rule and all its numbers",
          "[server][optimizer]") {
  const google::protobuf::OneofDescriptor& kinds = *v1::Optimizer::descriptor()->oneof_decl(0);
  std::set<OptimizerKind> rules;
  for (int i = 0; i < kinds.field_count(); ++i) {
    const std::string name = kinds.field(i)->name();
    if (name == "plugin") continue;  // Its rules are elsewhere.
    INFO(name);
    REQUIRE_OK_AND_ASSIGN(const OptimizerConfig config, Read(name + " {} learning_rate: 1"));
    CHECK(kernels::cuda::TraitsOf(config.kind).name == name);
    CHECK(kernels::cuda::TraitsOf(config.kind).layer_wise == NeedsWholeTensors(name));
    rules.insert(config.kind);
    std::set<std::string> described;
    for (const OptimizerField& field : OptimizerFields(name)) described.emplace(field.name);
    std::set<std::string> declared;
    const google::protobuf::Descriptor& message = *kinds.field(i)->message_type();
    for (int f = 0; f < message.field_count(); ++f) {
      if (message.field(f)->name() != "row_wise") declared.insert(message.field(f)->name());
    }
    CHECK(described == declared);
    for (const std::string& field : described) {
      CHECK(std::any_of(std::begin(kOptimizerNumbers), std::end(kOptimizerNumbers),
                        [&](const OptimizerNumberName& known) { return known.name == field; }));
    }
  }
  CHECK(rules.size() == static_cast<size_t>(kinds.field_count()) - 1);
}

TEST_CASE("OptimizerFromProto: every field reaches the config", "[server][optimizer]") {
  REQUIRE_OK_AND_ASSIGN(const OptimizerConfig rmsprop, Read(R"pb(
                          rmsprop { alpha: 0.5 epsilon: 0.25 momentum: 0.125 }
                          learning_rate: 2
                          weight_decay: 3
                          clip_value: 4
                          clip_norm: 5
                          schedule {
                            warmup_steps: 6
                            step { every: 7 factor: 0.75 }
                          })pb"));
  CHECK(rmsprop.alpha == 0.5f);
  CHECK(rmsprop.epsilon == 0.25f);
  CHECK(rmsprop.momentum == 0.125f);
  CHECK(rmsprop.learning_rate == 2.0f);
  CHECK(rmsprop.weight_decay == 3.0f);
  CHECK(rmsprop.clip_value == 4.0f);
  CHECK(rmsprop.schedule.warmup_steps == 6);
  CHECK(rmsprop.schedule.kind == ScheduleKind::kStep);
  CHECK(rmsprop.schedule.step_every == 7);
  CHECK(rmsprop.schedule.step_factor == 0.75f);
  REQUIRE_OK_AND_ASSIGN(const OptimizerConfig adam, Read(R"pb(
                          adam { beta1: 0 beta2: 0.5 epsilon: 1 }
                          learning_rate: 1
                          schedule { cosine { steps: 8 minimum: 0.5 } })pb"));
  CHECK(adam.beta1 == 0.0f);
  CHECK(adam.beta2 == 0.5f);
  CHECK(adam.epsilon == 1.0f);
  CHECK(adam.schedule.kind == ScheduleKind::kCosine);
  CHECK(adam.schedule.cosine_steps == 8);
  CHECK(adam.schedule.cosine_minimum == 0.5f);
  REQUIRE_OK_AND_ASSIGN(const OptimizerConfig adagrad, Read(R"pb(
                          adagrad { epsilon: 0.5 initial_accumulator: 0.25 row_wise: true }
                          learning_rate: 1
                          schedule { constant {} })pb"));
  CHECK(adagrad.epsilon == 0.5f);
  CHECK(adagrad.initial_accumulator == 0.25f);
  CHECK(adagrad.row_wise);
  CHECK(adagrad.schedule.kind == ScheduleKind::kConstant);
  REQUIRE_OK_AND_ASSIGN(
      const OptimizerConfig ftrl,
      Read("ftrl { beta: 0 l1: 0.5 l2: 0.25 } learning_rate: 2 clip_value: 3 weight_decay: 0"));
  CHECK(ftrl.beta == 0.0f);
  CHECK(ftrl.l1 == 0.5f);
  CHECK(ftrl.l2 == 0.25f);
  CHECK(ftrl.learning_rate == 2.0f);
  CHECK(ftrl.clip_value == 3.0f);
}

TEST_CASE("OptimizerFromProto: without a rule the error lists them", "[server][optimizer]") {
  CHECK_STATUS(Read("learning_rate: 1"), kBad, "expected one of sgd, momentum");
  CHECK_STATUS(Read("learning_rate: 1"), kBad, "adamw, ftrl");
}

struct Case {
  const char* text;
  const char* message;
};

TEST_CASE("OptimizerFromProto: a value out of range is named with its value and the range",
          "[server][optimizer]") {
  const Case cases[] = {
      {"sgd {}", "optimizer.learning_rate: got 0 or nothing, expected a finite number above 0"},
      {"sgd {} learning_rate: -1",
       "optimizer.learning_rate: got -1, expected a finite number above 0"},
      {"sgd {} learning_rate: inf", "optimizer.learning_rate: got inf, expected"},
      {"sgd {} learning_rate: nan", "optimizer.learning_rate: got nan, expected"},
      {"sgd {} learning_rate: 1 weight_decay: -0.5", "optimizer.weight_decay: got -0.5, expected"},
      {"sgd {} learning_rate: 1 weight_decay: inf", "optimizer.weight_decay: got inf, expected"},
      {"sgd {} learning_rate: 1 clip_value: 0", "optimizer.clip_value: got 0, expected"},
      {"sgd {} learning_rate: 1 clip_norm: 0", "optimizer.clip_norm: got 0, expected"},
      {"sgd {} learning_rate: 1 clip_norm: nan", "optimizer.clip_norm: got nan, expected"},
      {"momentum { momentum: 1 }",
       "optimizer.momentum.momentum: got 1, expected a number in [0, 1)"},
      {"momentum { momentum: -0.5 }", "optimizer.momentum.momentum: got -0.5, expected"},
      {"nesterov { momentum: 0 }",
       "optimizer.nesterov.momentum: got 0, expected a number in (0, 1)"},
      {"nesterov { momentum: 1 }", "optimizer.nesterov.momentum: got 1, expected"},
      {"adagrad { epsilon: 0 }", "optimizer.adagrad.epsilon: got 0, expected"},
      {"adagrad { initial_accumulator: -1 }",
       "optimizer.adagrad.initial_accumulator: got -1, expected"},
      {"rmsprop { alpha: 1 }", "optimizer.rmsprop.alpha: got 1, expected"},
      {"rmsprop { epsilon: -1 }", "optimizer.rmsprop.epsilon: got -1, expected"},
      {"rmsprop { momentum: nan }", "optimizer.rmsprop.momentum: got nan, expected"},
      {"adam { beta1: 1 }", "optimizer.adam.beta1: got 1, expected"},
      {"adam { beta2: 1.5 }", "optimizer.adam.beta2: got 1.5, expected"},
      {"adamw { beta2: -1 }", "optimizer.adamw.beta2: got -1, expected"},
      {"adamw { epsilon: 0 }", "optimizer.adamw.epsilon: got 0, expected"},
      {"ftrl { beta: -1 }", "optimizer.ftrl.beta: got -1, expected a finite number of at least 0"},
      {"ftrl { l1: -0.5 }", "optimizer.ftrl.l1: got -0.5, expected a finite number of at least 0"},
      {"ftrl { l2: nan }", "optimizer.ftrl.l2: got nan, expected a finite number of at least 0"},
      {"ftrl { l2: inf }", "optimizer.ftrl.l2: got inf, expected a finite number of at least 0"},
      {"amsgrad { beta2: 1 }", "optimizer.amsgrad.beta2: got 1, expected a number in [0, 1)"},
      {"amsgrad { epsilon: 0 }",
       "optimizer.amsgrad.epsilon: got 0, expected a finite number above 0"},
      {"lars { trust_coefficient: 0 }",
       "optimizer.lars.trust_coefficient: got 0, expected a finite number above 0"},
      {"lamb { beta1: 1 }", "optimizer.lamb.beta1: got 1, expected a number in [0, 1)"},
      {"adadelta { rho: 1 }", "optimizer.adadelta.rho: got 1, expected a number in [0, 1)"},
      {"adadelta { epsilon: 0 }",
       "optimizer.adadelta.epsilon: got 0, expected a finite number above 0"},
      {"lion { beta1: 1 }", "optimizer.lion.beta1: got 1, expected a number in [0, 1)"},
      {"lion { beta2: -1 }", "optimizer.lion.beta2: got -1, expected a number in [0, 1)"},
      {"ftrl {} learning_rate: 1 weight_decay: 0.25",
       "optimizer.weight_decay: got 0.25, expected 0 with ftrl, whose L2 is optimizer.ftrl.l2"},
  };
  for (const Case& c : cases) {
    INFO(c.text);
    CHECK_STATUS(Read(c.text), kBad, c.message);
  }
}

TEST_CASE("OptimizerFromProto: a schedule out of range is named", "[server][optimizer]") {
  const Case cases[] = {
      {"sgd {} learning_rate: 1 schedule { warmup_steps: -1 }",
       "optimizer.schedule.warmup_steps: got -1, expected at least 0"},
      {"sgd {} learning_rate: 1 schedule { step { factor: 0.5 } }",
       "optimizer.schedule.step.every: got 0 or nothing, expected at least 1"},
      {"sgd {} learning_rate: 1 schedule { step { every: 1 } }",
       "optimizer.schedule.step.factor: got 0 or nothing, expected a number in (0, 1]"},
      {"sgd {} learning_rate: 1 schedule { step { every: 1 factor: 1.5 } }",
       "optimizer.schedule.step.factor: got 1.5, expected"},
      {"sgd {} learning_rate: 1 schedule { cosine {} }",
       "optimizer.schedule.cosine.steps: got 0 or nothing, expected at least 1"},
      {"sgd {} learning_rate: 1 schedule { cosine { steps: 1 minimum: -1 } }",
       "optimizer.schedule.cosine.minimum: got -1, expected a finite number of at least 0"},
      {"sgd {} learning_rate: 1 schedule { pieces {} }",
       "optimizer.schedule.pieces: got 0 begins and 0 factors, expected as many of both, 1 to "
       "100000"},
      {"sgd {} learning_rate: 1 schedule { pieces { begins: 1 factors: 1 } }",
       "optimizer.schedule.pieces.begins[0]: got 1, expected 0 to 0"},
      {"sgd {} learning_rate: 1 schedule { pieces { begins: [0, 4, 4] factors: [1, 2, 3] } }",
       "optimizer.schedule.pieces.begins[2]: got 4, expected 5 to 9223372036854775806"},
      {"sgd {} learning_rate: 1 schedule { pieces { begins: 0 factors: -1 } }",
       "optimizer.schedule.pieces.factors[0]: got -1, expected a finite number of at least 0"},
  };
  for (const Case& c : cases) {
    INFO(c.text);
    CHECK_STATUS(Read(c.text), kBad, c.message);
  }
}

// ---------------------------------------------------------------- rules of plugins

constexpr double kDefaults[] = {0.5, 2.0};

const char* CheckNumbers(const double* numbers) {
  return numbers[0] < 1 ? nullptr : "decay: expected below 1";
}

constexpr CapstanRule kSteady{.name = "steady",
                              .state_count = 1,
                              .number_count = 2,
                              .default_numbers = kDefaults,
                              .check = CheckNumbers};

PluginRules Plugins() {
  PluginRules rules;
  REQUIRE_OK(rules.Add({.rule = &kSteady, .digest = std::string(64, 'a'), .file = "/rules.so"}));
  return rules;
}

TEST_CASE("OptimizerFromProto: a plugin's rule gets the job's numbers, or its own",
          "[server][optimizer]") {
  const PluginRules plugins = Plugins();
  REQUIRE_OK_AND_ASSIGN(const OptimizerConfig own,
                        Read("plugin { rule: 'steady' } learning_rate: 0.5", &plugins));
  CHECK(own.kind == OptimizerKind::kPlugin);
  CHECK(own.plugin_rule == &kSteady);
  CHECK(own.plugin_numbers == std::vector<double>{0.5, 2.0});
  CHECK(own.learning_rate == 0.5f);
  const std::string text = "plugin { rule: 'steady' numbers: [0.25, 4] digest: '" +
                           std::string(64, 'a') + "' } learning_rate: 1 weight_decay: 2";
  REQUIRE_OK_AND_ASSIGN(const OptimizerConfig given, Read(text, &plugins));
  CHECK(given.plugin_numbers == std::vector<double>{0.25, 4.0});
  CHECK(given.weight_decay == 2.0f);
}

TEST_CASE("OptimizerFromProto: a rule that no plugin has is refused by name",
          "[server][optimizer]") {
  CHECK_STATUS(Read("plugin { rule: 'steady' } learning_rate: 1"), kBad,
               "optimizer.plugin.rule: got \"steady\", expected a rule that this server has by "
               "--rule-plugin: none");
  const PluginRules plugins = Plugins();
  CHECK_STATUS(Read("plugin { rule: 'other' } learning_rate: 1", &plugins), kBad,
               "expected a rule that this server has by --rule-plugin: steady");
}

TEST_CASE("OptimizerFromProto: a plugin's file of another digest is refused",
          "[server][optimizer]") {
  const PluginRules plugins = Plugins();
  const std::string text =
      "plugin { rule: 'steady' digest: '" + std::string(64, 'b') + "' } learning_rate: 1";
  CHECK_STATUS(Read(text, &plugins), kBad,
               "optimizer.plugin.digest: got " + std::string(64, 'b') + ", expected " +
                   std::string(64, 'a') +
                   ", that of /rules.so, from which this server has the rule steady");
}

TEST_CASE("OptimizerFromProto: numbers that a plugin's rule does not want are refused",
          "[server][optimizer]") {
  const PluginRules plugins = Plugins();
  const Case cases[] = {
      {"plugin { rule: 'steady' numbers: 1 } learning_rate: 1",
       "optimizer.plugin.numbers: got 1 numbers, expected the 2 of steady, or none"},
      {"plugin { rule: 'steady' numbers: [1, 2] } learning_rate: 1",
       "optimizer.plugin.numbers: got 1, 2: steady says decay: expected below 1"},
      {"plugin { rule: 'steady' numbers: [inf, 2] } learning_rate: 1",
       "optimizer.plugin.numbers[0]: got inf, expected a finite number"},
      {"plugin { rule: 'Steady' } learning_rate: 1",
       "optimizer.plugin.rule: got \"Steady\", expected the name of a rule that servers have by "
       "--rule-plugin"},
      {"plugin { rule: 'steady' digest: 'abc' } learning_rate: 1",
       "optimizer.plugin.digest: got \"abc\", expected 64 digits 0-9 and a-f"},
  };
  for (const Case& c : cases) {
    INFO(c.text);
    CHECK_STATUS(Read(c.text, &plugins), kBad, c.message);
  }
}

}  // namespace
}  // namespace capstan::server::optimizer_from_proto_test
