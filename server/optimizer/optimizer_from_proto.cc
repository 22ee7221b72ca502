#include "server/optimizer/optimizer_from_proto.h"

#include <cmath>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/status/status_macros.h"

namespace capstan::server {
namespace {

template <typename T>
absl::Status OutOfRange(absl::string_view field, T value, absl::string_view expected) {
  return absl::InvalidArgumentError(
      absl::StrCat("optimizer.", field, ": ", value, "; expected ", expected));
}

// A NaN fails all of these.
absl::Status CheckPositive(absl::string_view field, float value) {
  if (value > 0.0f && std::isfinite(value)) return absl::OkStatus();
  return OutOfRange(field, value, "a finite number > 0");
}

absl::Status CheckNotNegative(absl::string_view field, float value) {
  if (value >= 0.0f && std::isfinite(value)) return absl::OkStatus();
  return OutOfRange(field, value, "a finite number >= 0");
}

absl::Status CheckFraction(absl::string_view field, float value) {
  if (value >= 0.0f && value < 1.0f) return absl::OkStatus();
  return OutOfRange(field, value, "a number in [0, 1)");
}

absl::Status CheckAtLeast(absl::string_view field, int64_t value, int64_t minimum) {
  if (value >= minimum) return absl::OkStatus();
  return OutOfRange(field, value, absl::StrCat("a whole number >= ", minimum));
}

absl::Status ReadMomentum(const v1::Momentum& proto, OptimizerConfig* config) {
  config->kind = OptimizerKind::kMomentum;
  config->momentum = proto.has_momentum() ? proto.momentum() : 0.9f;
  return CheckFraction("momentum.momentum", config->momentum);
}

absl::Status ReadNesterov(const v1::Nesterov& proto, OptimizerConfig* config) {
  config->kind = OptimizerKind::kNesterov;
  config->momentum = proto.has_momentum() ? proto.momentum() : 0.9f;
  if (config->momentum > 0.0f && config->momentum < 1.0f) return absl::OkStatus();
  return OutOfRange("nesterov.momentum", config->momentum, "a number in (0, 1)");
}

absl::Status ReadAdagrad(const v1::Adagrad& proto, OptimizerConfig* config) {
  config->kind = OptimizerKind::kAdagrad;
  config->epsilon = proto.has_epsilon() ? proto.epsilon() : 1e-10f;
  config->initial_accumulator = proto.has_initial_accumulator() ? proto.initial_accumulator() : 0;
  config->row_wise = proto.row_wise();
  CAPSTAN_RETURN_IF_ERROR(CheckPositive("adagrad.epsilon", config->epsilon));
  return CheckNotNegative("adagrad.initial_accumulator", config->initial_accumulator);
}

absl::Status ReadRmsProp(const v1::RmsProp& proto, OptimizerConfig* config) {
  config->kind = OptimizerKind::kRmsProp;
  config->alpha = proto.has_alpha() ? proto.alpha() : 0.99f;
  config->epsilon = proto.has_epsilon() ? proto.epsilon() : 1e-8f;
  config->momentum = proto.has_momentum() ? proto.momentum() : 0.0f;
  CAPSTAN_RETURN_IF_ERROR(CheckFraction("rmsprop.alpha", config->alpha));
  CAPSTAN_RETURN_IF_ERROR(CheckPositive("rmsprop.epsilon", config->epsilon));
  return CheckFraction("rmsprop.momentum", config->momentum);
}

absl::Status ReadAdam(absl::string_view name, const v1::Adam& proto, OptimizerKind kind,
                      OptimizerConfig* config) {
  config->kind = kind;
  config->beta1 = proto.has_beta1() ? proto.beta1() : 0.9f;
  config->beta2 = proto.has_beta2() ? proto.beta2() : 0.999f;
  config->epsilon = proto.has_epsilon() ? proto.epsilon() : 1e-8f;
  CAPSTAN_RETURN_IF_ERROR(CheckFraction(absl::StrCat(name, ".beta1"), config->beta1));
  CAPSTAN_RETURN_IF_ERROR(CheckFraction(absl::StrCat(name, ".beta2"), config->beta2));
  return CheckPositive(absl::StrCat(name, ".epsilon"), config->epsilon);
}

absl::Status ReadFtrl(const v1::Ftrl& proto, OptimizerConfig* config) {
  config->kind = OptimizerKind::kFtrl;
  config->beta = proto.has_beta() ? proto.beta() : 1.0f;
  config->l1 = proto.l1();
  config->l2 = proto.l2();
  CAPSTAN_RETURN_IF_ERROR(CheckNotNegative("ftrl.beta", config->beta));
  CAPSTAN_RETURN_IF_ERROR(CheckNotNegative("ftrl.l1", config->l1));
  return CheckNotNegative("ftrl.l2", config->l2);
}

absl::Status ReadKind(const v1::Optimizer& proto, OptimizerConfig* config) {
  switch (proto.kind_case()) {
    case v1::Optimizer::kSgd:
      config->kind = OptimizerKind::kSgd;
      return absl::OkStatus();
    case v1::Optimizer::kMomentum:
      return ReadMomentum(proto.momentum(), config);
    case v1::Optimizer::kNesterov:
      return ReadNesterov(proto.nesterov(), config);
    case v1::Optimizer::kAdagrad:
      return ReadAdagrad(proto.adagrad(), config);
    case v1::Optimizer::kRmsprop:
      return ReadRmsProp(proto.rmsprop(), config);
    case v1::Optimizer::kAdam:
      return ReadAdam("adam", proto.adam(), OptimizerKind::kAdam, config);
    case v1::Optimizer::kAdamw:
      return ReadAdam("adamw", proto.adamw(), OptimizerKind::kAdamW, config);
    case v1::Optimizer::kFtrl:
      return ReadFtrl(proto.ftrl(), config);
    case v1::Optimizer::KIND_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError(
      "optimizer: no rule; expected one of sgd, momentum, nesterov, adagrad, rmsprop, adam, adamw, "
      "ftrl");
}

absl::Status ReadSchedule(const v1::Schedule& proto, ScheduleConfig* schedule) {
  schedule->warmup_steps = proto.warmup_steps();
  CAPSTAN_RETURN_IF_ERROR(CheckAtLeast("schedule.warmup_steps", schedule->warmup_steps, 0));
  if (proto.has_step()) {
    schedule->kind = ScheduleKind::kStep;
    schedule->step_every = proto.step().every();
    schedule->step_factor = proto.step().factor();
    CAPSTAN_RETURN_IF_ERROR(CheckAtLeast("schedule.step.every", schedule->step_every, 1));
    if (!(schedule->step_factor > 0.0f && schedule->step_factor <= 1.0f)) {
      return OutOfRange("schedule.step.factor", schedule->step_factor, "a number in (0, 1]");
    }
  }
  if (proto.has_cosine()) {
    schedule->kind = ScheduleKind::kCosine;
    schedule->cosine_steps = proto.cosine().steps();
    schedule->cosine_minimum = proto.cosine().minimum();
    CAPSTAN_RETURN_IF_ERROR(CheckAtLeast("schedule.cosine.steps", schedule->cosine_steps, 1));
    return CheckNotNegative("schedule.cosine.minimum", schedule->cosine_minimum);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<OptimizerConfig> OptimizerFromProto(const v1::Optimizer& proto) {
  OptimizerConfig config;
  CAPSTAN_RETURN_IF_ERROR(ReadKind(proto, &config));
  config.learning_rate = proto.learning_rate();
  config.weight_decay = proto.weight_decay();
  CAPSTAN_RETURN_IF_ERROR(CheckPositive("learning_rate", config.learning_rate));
  CAPSTAN_RETURN_IF_ERROR(CheckNotNegative("weight_decay", config.weight_decay));
  if (proto.has_ftrl() && config.weight_decay != 0.0f) {
    return OutOfRange("weight_decay", config.weight_decay,
                      "0 with ftrl, whose L2 is optimizer.ftrl.l2");
  }
  if (proto.has_clip_value()) {
    config.clip_value = proto.clip_value();
    CAPSTAN_RETURN_IF_ERROR(CheckPositive("clip_value", config.clip_value));
  }
  if (proto.has_clip_norm()) CAPSTAN_RETURN_IF_ERROR(CheckPositive("clip_norm", proto.clip_norm()));
  CAPSTAN_RETURN_IF_ERROR(ReadSchedule(proto.schedule(), &config.schedule));
  return config;
}

}  // namespace capstan::server
