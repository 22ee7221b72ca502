// ValidateOptimizer: checks a job's `optimizer` message. Part of ValidateJob.
// Thread safety: pure functions.
#ifndef CAPSTAN_COMMON_JOB_VALIDATE_VALIDATE_OPTIMIZER_H_
#define CAPSTAN_COMMON_JOB_VALIDATE_VALIDATE_OPTIMIZER_H_

#include "common/job/fields/field_checker.h"
#include "proto/job.pb.h"

namespace capstan {

// Checks what is the same for all models: a kind is chosen, and each number is in its range.
void ValidateOptimizerNumbers(const v1::Optimizer& optimizer, FieldChecker checker);

// Checks all of it. Appends what is wrong to the list of `checker`, whose path is that of
// `optimizer`. `sparse`: it updates rows, too.
void ValidateOptimizer(const v1::Optimizer& optimizer, bool sparse, FieldChecker checker);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_JOB_VALIDATE_VALIDATE_OPTIMIZER_H_
