// JobFigures: says whether samples of a job have an accuracy beside the loss.
//
// The objective decides this. But a program (JobSpec.program) itself counts how many of its samples
// were classified correctly, and may count none. Samples of which it counted none have no accuracy.
// Thread safety: a value.
#ifndef CAPSTAN_SCHEDULER_CODEC_JOB_FIGURES_H_
#define CAPSTAN_SCHEDULER_CODEC_JOB_FIGURES_H_

#include <optional>

#include "common/metrics/evaluation.h"

namespace capstan::scheduler {

struct JobFigures {
  Objective objective = Objective::kClasses;
  bool of_program = false;

  // `correct`: the share of some samples that were classified correctly, 0 to 1.
  std::optional<double> Accuracy(double correct) const {
    const bool counted = !of_program || correct > 0;
    return HasAccuracy(objective) && counted ? std::optional(correct) : std::nullopt;
  }
};

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_CODEC_JOB_FIGURES_H_
