// ObjectiveOf: derives a job's Objective (common/metrics/evaluation.h) from its model and data.
//
// Thread safety: a pure function.
#ifndef CAPSTAN_COMMON_JOB_SPEC_OBJECTIVE_H_
#define CAPSTAN_COMMON_JOB_SPEC_OBJECTIVE_H_

#include "common/metrics/evaluation.h"
#include "proto/job.pb.h"

namespace capstan {

// Models of layers: classes, numbers or several labels, by their loss. Sparse ones: words, examples
// without labels, ratings (a squared loss), else clicks.
Objective ObjectiveOf(const v1::Model& model, const v1::Data& data);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_JOB_SPEC_OBJECTIVE_H_
