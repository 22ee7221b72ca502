// Checks of a job that runs a user's program: the program's fields, and what cannot go with it.
// Thread safety: pure functions.
#ifndef CAPSTAN_COMMON_JOB_VALIDATE_VALIDATE_PROGRAM_H_
#define CAPSTAN_COMMON_JOB_VALIDATE_VALIDATE_PROGRAM_H_

#include "common/job/fields/field_checker.h"
#include "proto/job.pb.h"

namespace capstan {

// `check` is that of the job. REQUIRES: the job has a program.
void ValidateProgram(const v1::JobSpec& spec, FieldChecker check);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_JOB_VALIDATE_VALIDATE_PROGRAM_H_
