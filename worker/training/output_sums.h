// SumOutputs: sums figures of the outputs of evaluated samples.
//
// Thread safety: a pure function.
#ifndef CAPSTAN_WORKER_TRAINING_OUTPUT_SUMS_H_
#define CAPSTAN_WORKER_TRAINING_OUTPUT_SUMS_H_

#include <cstdint>

#include "absl/types/span.h"
#include "common/metrics/evaluation.h"
#include "common/metrics/score_counts.h"
#include "common/model/model_plan.h"

namespace capstan::worker {

// Adds the outputs of n samples.
//   logits   [n, outputs]
//   labels   [n], read if loss.of_classes(): classes
//   targets  [n, outputs], read otherwise
//   scores   if there are several labels: gets one score for each output
void SumOutputs(const PlannedLoss& loss, int64_t outputs, absl::Span<const float> logits,
                absl::Span<const int32_t> labels, absl::Span<const float> targets, OutputSums* sums,
                ScoreCounts* scores);

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_TRAINING_OUTPUT_SUMS_H_
