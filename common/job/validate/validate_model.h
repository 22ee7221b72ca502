// ValidateModel: checks a job's `model` message, without shapes. Part of ValidateJob.
// Thread safety: a pure function.
#ifndef CAPSTAN_COMMON_JOB_VALIDATE_VALIDATE_MODEL_H_
#define CAPSTAN_COMMON_JOB_VALIDATE_VALIDATE_MODEL_H_

#include "common/job/fields/field_checker.h"
#include "proto/job.pb.h"

namespace capstan {

// Appends what is wrong to the list of `checker`, whose path is that of `model`.
void ValidateModel(const v1::Model& model, FieldChecker checker);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_JOB_VALIDATE_VALIDATE_MODEL_H_
