// Checks the ranges of a model on examples. Thread safety: a pure function.
#ifndef CAPSTAN_COMMON_JOB_VALIDATE_SPARSE_MODEL_H_
#define CAPSTAN_COMMON_JOB_VALIDATE_SPARSE_MODEL_H_

#include "common/job/field_checker.h"
#include "proto/job.pb.h"

namespace capstan {

void ValidateSparseModel(const v1::SparseModel& model, FieldChecker check);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_JOB_VALIDATE_SPARSE_MODEL_H_
