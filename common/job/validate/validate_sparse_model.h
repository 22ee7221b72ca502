// Checks the ranges of a model on examples, and of its rows. Thread safety: pure functions.
#ifndef CAPSTAN_COMMON_JOB_VALIDATE_VALIDATE_SPARSE_MODEL_H_
#define CAPSTAN_COMMON_JOB_VALIDATE_VALIDATE_SPARSE_MODEL_H_

#include <cstdint>

#include "common/job/fields/field_checker.h"
#include "proto/job.pb.h"

namespace capstan {

// Checks the rules for creating and removing rows of a table with this many buckets.
void ValidateRowLifetime(const v1::SparseModel::RowLifetime& rows, int32_t buckets,
                         FieldChecker check);

void ValidateSparseModel(const v1::SparseModel& model, FieldChecker check);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_JOB_VALIDATE_VALIDATE_SPARSE_MODEL_H_
