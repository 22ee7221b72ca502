#include "server/optimizer/config/optimizer_from_proto.h"

#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "common/job/fields/diagnostic.h"
#include "common/job/fields/field_checker.h"
#include "common/job/spec/optimizer_fields.h"
#include "common/job/validate/validate_optimizer.h"
#include "common/status/status_macros.h"
#include "kernels/cuda/element_rules.h"

namespace capstan::server {
namespace {

void ReadKind(const v1::Optimizer& proto, OptimizerConfig* config) {
  const absl::string_view name = OptimizerName(proto);
  for (const kernels::cuda::UpdateRuleTraits& traits : kernels::cuda::kUpdateRules) {
    if (traits.name == name) config->kind = traits.rule;
  }
  for (const OptimizerField& field : OptimizerFields(name)) {
    for (const OptimizerNumberName& known : kOptimizerNumbers) {
      if (known.name == field.name) config->*known.number = OptimizerNumber(proto, field);
    }
  }
  config->row_wise = proto.adagrad().row_wise();
}

void ReadSchedule(const v1::Schedule& proto, ScheduleConfig* schedule) {
  schedule->warmup_steps = proto.warmup_steps();
  if (proto.has_step()) {
    schedule->kind = ScheduleKind::kStep;
    schedule->step_every = proto.step().every();
    schedule->step_factor = proto.step().factor();
  }
  if (proto.has_cosine()) {
    schedule->kind = ScheduleKind::kCosine;
    schedule->cosine_steps = proto.cosine().steps();
    schedule->cosine_minimum = proto.cosine().minimum();
  }
  if (proto.has_pieces()) {
    schedule->kind = ScheduleKind::kPieces;
    std::vector<RatePiece> pieces;
    for (int i = 0; i < proto.pieces().begins_size(); ++i) {
      pieces.push_back({.begin = proto.pieces().begins(i), .factor = proto.pieces().factors(i)});
    }
    schedule->pieces = std::make_shared<const std::vector<RatePiece>>(std::move(pieces));
  }
}

absl::Status ReadPlugin(const v1::Plugin& proto, const PluginRules* plugins,
                        OptimizerConfig* config) {
  const PluginRule* const found = plugins == nullptr ? nullptr : plugins->Find(proto.rule());
  if (found == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("optimizer.plugin.rule: got \"", proto.rule(),
                     "\", expected a rule that this server has by --rule-plugin: ",
                     plugins == nullptr ? "none" : plugins->Names()));
  }
  if (!proto.digest().empty() && proto.digest() != found->digest) {
    return absl::InvalidArgumentError(
        absl::StrCat("optimizer.plugin.digest: got ", proto.digest(), ", expected ", found->digest,
                     ", that of ", found->file, ", from which this server has the rule ",
                     proto.rule(), ": another file may compute other bits"));
  }
  const CapstanRule& rule = *found->rule;
  const auto count = static_cast<int>(rule.number_count);
  config->plugin_rule = &rule;
  config->plugin_numbers.assign(rule.default_numbers, rule.default_numbers + count);
  if (proto.numbers().empty()) return absl::OkStatus();
  if (proto.numbers_size() != count) {
    return absl::InvalidArgumentError(absl::StrCat("optimizer.plugin.numbers: got ",
                                                   proto.numbers_size(), " numbers, expected the ",
                                                   count, " of ", proto.rule(), ", or none"));
  }
  config->plugin_numbers.assign(proto.numbers().begin(), proto.numbers().end());
  const char* const refusal = rule.check == nullptr ? nullptr : rule.check(proto.numbers().data());
  if (refusal == nullptr) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("optimizer.plugin.numbers: got ", absl::StrJoin(proto.numbers(), ", "), ": ",
                   proto.rule(), " says ", absl::CHexEscape(refusal)));
}

}  // namespace

absl::StatusOr<OptimizerConfig> OptimizerFromProto(const v1::Optimizer& proto,
                                                   const PluginRules* plugins) {
  std::vector<Diagnostic> diagnostics;
  ValidateOptimizerNumbers(proto, FieldChecker("optimizer", &diagnostics));
  if (!diagnostics.empty()) return absl::InvalidArgumentError(diagnostics.front().ToString());
  OptimizerConfig config;
  ReadKind(proto, &config);
  if (proto.has_plugin()) CAPSTAN_RETURN_IF_ERROR(ReadPlugin(proto.plugin(), plugins, &config));
  config.learning_rate = proto.learning_rate();
  config.weight_decay = proto.weight_decay();
  config.clip_value = proto.clip_value();  // An absent value is 0, which means off.
  ReadSchedule(proto.schedule(), &config.schedule);
  return config;
}

}  // namespace capstan::server
