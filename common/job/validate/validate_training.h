// Checks of a job's training: the weights of its loss, and the decisions that follow from the
// figures of an evaluation.
//
// Thread safety: pure functions; they append to the checker's list.
#ifndef CAPSTAN_COMMON_JOB_VALIDATE_VALIDATE_TRAINING_H_
#define CAPSTAN_COMMON_JOB_VALIDATE_VALIDATE_TRAINING_H_

#include "absl/strings/string_view.h"
#include "common/job/fields/field_checker.h"
#include "proto/job.pb.h"

namespace capstan {

// The name of the loss of a model of layers, as the job file has it: "squared".
absl::string_view LossName(const v1::Model& model);

// `check` is that of `training`. The number of weights is not checked: it depends on the data.
void ValidateLossWeights(const v1::JobSpec& spec, FieldChecker check);

// Early stopping, the best epoch, the learning rate on a plateau, and their metric.
void ValidateDecisions(const v1::JobSpec& spec, FieldChecker check);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_JOB_VALIDATE_VALIDATE_TRAINING_H_
