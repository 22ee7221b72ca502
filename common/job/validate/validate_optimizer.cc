#include "common/job/validate/validate_optimizer.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/job/spec/optimizer_fields.h"

namespace capstan {
namespace {

void ValidateKind(const v1::Optimizer& optimizer, FieldChecker check) {
  const absl::string_view name = OptimizerName(optimizer);
  if (name.empty()) return check.Missing("", absl::StrCat("one of ", OptimizerNames()));
  for (const OptimizerField& field : OptimizerFields(name)) {
    if (!HasOptimizerNumber(optimizer, field)) continue;
    check.In(name).Real(field.name, OptimizerNumber(optimizer, field), field.range,
                        Presence::kExplicit);
  }
}

constexpr int kPluginNumbersMax = 16;
constexpr size_t kRuleNameBytesMax = 64;
constexpr size_t kDigestBytes = 64;

// The names of server/optimizer/plugin/capstan_rule.h.
bool IsRuleName(absl::string_view name) {
  return !name.empty() && name.size() <= kRuleNameBytesMax && absl::ascii_islower(name[0]) &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return absl::ascii_islower(c) || absl::ascii_isdigit(c) || c == '_';
         });
}

// Only the servers that have the rule know which numbers it has, and their ranges.
void ValidatePlugin(const v1::Plugin& plugin, FieldChecker check) {
  if (!IsRuleName(plugin.rule())) {
    check.Wrong("rule", Quote(plugin.rule()),
                "the name of a rule that servers have by --rule-plugin: 1 to 64 letters a-z, "
                "digits and '_', a letter first");
  }
  if (plugin.numbers_size() > kPluginNumbersMax) {
    check.Wrong("numbers", absl::StrCat(plugin.numbers_size(), " numbers"),
                absl::StrCat("at most ", kPluginNumbersMax));
    return;
  }
  for (int i = 0; i < plugin.numbers_size(); ++i) {
    check.Real(absl::StrCat("numbers[", i, "]"), plugin.numbers(i), Finite(), Presence::kExplicit);
  }
  const std::string& digest = plugin.digest();
  const bool hexadecimal = digest.find_first_not_of("0123456789abcdef") == std::string::npos;
  if (digest.empty() || (digest.size() == kDigestBytes && hexadecimal)) return;
  check.Wrong("digest", Quote(digest), "64 digits 0-9 and a-f, as sha256sum prints them");
}

constexpr int kPiecesMax = 100'000;

void ValidatePieces(const v1::Schedule::Pieces& pieces, FieldChecker check) {
  const int count = pieces.begins_size();
  if (count < 1 || count > kPiecesMax || pieces.factors_size() != count) {
    check.Wrong("", absl::StrCat(count, " begins and ", pieces.factors_size(), " factors"),
                absl::StrCat("as many of both, 1 to ", kPiecesMax));
    return;
  }
  for (int i = 0; i < count; ++i) {
    const int64_t low = i == 0 ? 0 : pieces.begins(i - 1) + 1;
    const int64_t high = i == 0 ? 0 : std::numeric_limits<int64_t>::max() - 1;
    if (!check.IntegerBetween(absl::StrCat("begins[", i, "]"), pieces.begins(i), low, high,
                              Presence::kExplicit) ||
        !check.Real(absl::StrCat("factors[", i, "]"), pieces.factors(i), AtLeast(0),
                    Presence::kExplicit)) {
      return;
    }
  }
}

void ValidateSchedule(const v1::Schedule& schedule, FieldChecker check) {
  if (schedule.has_step()) {
    check.IntegerAtLeast("step.every", schedule.step().every(), 1, Presence::kImplicit);
    check.Real("step.factor", schedule.step().factor(), OpenClosed(0, 1), Presence::kImplicit);
  }
  if (schedule.has_cosine()) {
    check.IntegerAtLeast("cosine.steps", schedule.cosine().steps(), 1, Presence::kImplicit);
    check.Real("cosine.minimum", schedule.cosine().minimum(), AtLeast(0), Presence::kExplicit);
  }
  if (schedule.has_pieces()) ValidatePieces(schedule.pieces(), check.In("pieces"));
  check.IntegerAtLeast("warmup_steps", schedule.warmup_steps(), 0, Presence::kExplicit);
}

// Checks what only rows of sparse tables may have, and what they cannot have.
void ValidateForRows(const v1::Optimizer& optimizer, bool sparse, FieldChecker check) {
  if (!sparse && optimizer.adagrad().row_wise()) {
    check.Wrong("adagrad.row_wise", "true", "false: only a sparse model has rows");
  }
  const absl::string_view name = OptimizerName(optimizer);
  if (sparse && NeedsWholeTensors(name)) {
    check.Wrong("", name,
                "another: it takes norms over whole tensors, and a sparse model has rows");
  }
  const v1::Schedule& schedule = optimizer.schedule();
  const bool constant =
      (schedule.kind_case() == v1::Schedule::KIND_NOT_SET || schedule.has_constant()) &&
      schedule.warmup_steps() == 0;
  if (sparse && optimizer.has_ftrl() && !constant) {
    check.Wrong("schedule", "a rate that changes",
                "none: with ftrl the weights of rows that are seldom updated follow from the rate");
  }
}

}  // namespace

void ValidateOptimizerNumbers(const v1::Optimizer& optimizer, FieldChecker check) {
  ValidateKind(optimizer, check);
  if (optimizer.has_plugin()) ValidatePlugin(optimizer.plugin(), check.In("plugin"));
  check.Real("learning_rate", optimizer.learning_rate(), Above(0), Presence::kImplicit);
  ValidateSchedule(optimizer.schedule(), check.In("schedule"));
  if (check.Real("weight_decay", optimizer.weight_decay(), AtLeast(0), Presence::kExplicit) &&
      optimizer.has_ftrl() && optimizer.weight_decay() != 0.0f) {
    check.Wrong("weight_decay", absl::StrCat(optimizer.weight_decay()),
                absl::StrCat("0 with ftrl, whose L2 is ", check.Path("ftrl.l2")));
  }
  if (optimizer.has_clip_value()) {
    check.Real("clip_value", optimizer.clip_value(), Above(0), Presence::kExplicit);
  }
  if (optimizer.has_clip_norm()) {
    check.Real("clip_norm", optimizer.clip_norm(), Above(0), Presence::kExplicit);
  }
}

void ValidateOptimizer(const v1::Optimizer& optimizer, bool sparse, FieldChecker check) {
  ValidateOptimizerNumbers(optimizer, check);
  ValidateForRows(optimizer, sparse, check);
}

}  // namespace capstan
