#include "common/job/validate_optimizer.h"

#include "absl/strings/str_cat.h"

namespace capstan {
namespace {

void ValidateAdam(const v1::Adam& adam, FieldChecker check) {
  if (adam.has_beta1()) check.Real("beta1", adam.beta1(), ClosedOpen(0, 1), Presence::kExplicit);
  if (adam.has_beta2()) check.Real("beta2", adam.beta2(), ClosedOpen(0, 1), Presence::kExplicit);
  if (adam.has_epsilon()) check.Real("epsilon", adam.epsilon(), Above(0), Presence::kExplicit);
}

void ValidateAdagrad(const v1::Adagrad& adagrad, FieldChecker check) {
  if (adagrad.has_epsilon()) {
    check.Real("epsilon", adagrad.epsilon(), Above(0), Presence::kExplicit);
  }
  if (adagrad.has_initial_accumulator()) {
    check.Real("initial_accumulator", adagrad.initial_accumulator(), AtLeast(0),
               Presence::kExplicit);
  }
}

void ValidateRmsProp(const v1::RmsProp& rmsprop, FieldChecker check) {
  if (rmsprop.has_alpha()) {
    check.Real("alpha", rmsprop.alpha(), ClosedOpen(0, 1), Presence::kExplicit);
  }
  if (rmsprop.has_epsilon()) {
    check.Real("epsilon", rmsprop.epsilon(), Above(0), Presence::kExplicit);
  }
  if (rmsprop.has_momentum()) {
    check.Real("momentum", rmsprop.momentum(), ClosedOpen(0, 1), Presence::kExplicit);
  }
}

void ValidateFtrl(const v1::Ftrl& ftrl, FieldChecker check) {
  if (ftrl.has_beta()) check.Real("beta", ftrl.beta(), AtLeast(0), Presence::kExplicit);
  if (ftrl.has_l1()) check.Real("l1", ftrl.l1(), AtLeast(0), Presence::kExplicit);
  if (ftrl.has_l2()) check.Real("l2", ftrl.l2(), AtLeast(0), Presence::kExplicit);
}

void ValidateKind(const v1::Optimizer& optimizer, FieldChecker check) {
  switch (optimizer.kind_case()) {
    case v1::Optimizer::kSgd:
      return;
    case v1::Optimizer::kMomentum:
      if (optimizer.momentum().has_momentum()) {
        check.Real("momentum.momentum", optimizer.momentum().momentum(), ClosedOpen(0, 1),
                   Presence::kExplicit);
      }
      return;
    case v1::Optimizer::kNesterov:
      if (optimizer.nesterov().has_momentum()) {
        check.Real("nesterov.momentum", optimizer.nesterov().momentum(), OpenOpen(0, 1),
                   Presence::kExplicit);
      }
      return;
    case v1::Optimizer::kAdagrad:
      return ValidateAdagrad(optimizer.adagrad(), check.In("adagrad"));
    case v1::Optimizer::kRmsprop:
      return ValidateRmsProp(optimizer.rmsprop(), check.In("rmsprop"));
    case v1::Optimizer::kAdam:
      return ValidateAdam(optimizer.adam(), check.In("adam"));
    case v1::Optimizer::kAdamw:
      return ValidateAdam(optimizer.adamw(), check.In("adamw"));
    case v1::Optimizer::kFtrl:
      return ValidateFtrl(optimizer.ftrl(), check.In("ftrl"));
    case v1::Optimizer::KIND_NOT_SET:
      check.Missing("", "one of sgd, momentum, nesterov, adagrad, rmsprop, adam, adamw, ftrl");
      return;
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
  check.IntegerAtLeast("warmup_steps", schedule.warmup_steps(), 0, Presence::kExplicit);
}

// What only rows of sparse tables have, and what they cannot have.
void ValidateForRows(const v1::Optimizer& optimizer, bool sparse, FieldChecker check) {
  if (!sparse && optimizer.adagrad().row_wise()) {
    check.Wrong("adagrad.row_wise", "true", "false: only a sparse model has rows");
  }
  const v1::Schedule& schedule = optimizer.schedule();
  const bool constant =
      !schedule.has_step() && !schedule.has_cosine() && schedule.warmup_steps() == 0;
  if (sparse && optimizer.has_ftrl() && !constant) {
    check.Wrong("schedule", "a rate that changes",
                "none: with ftrl the weights of rows that are seldom updated follow from the rate");
  }
}

}  // namespace

void ValidateOptimizer(const v1::Optimizer& optimizer, bool sparse, FieldChecker check) {
  ValidateKind(optimizer, check);
  ValidateForRows(optimizer, sparse, check);
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

}  // namespace capstan
