// ProgramTables: how the tensors of a user's program lie in the job's tables.
// Thread safety: a pure function.
#ifndef CAPSTAN_COMMON_JOB_PROGRAM_TABLES_H_
#define CAPSTAN_COMMON_JOB_PROGRAM_TABLES_H_

#include <vector>

#include "proto/job.pb.h"
#include "proto/parameter_server.pb.h"

namespace capstan {

// The table "parameters" and, if the program has averages, "statistics" (common/model/tables.h),
// with the tensors end to end in the program's order. All initial values are 0.
// REQUIRES: ValidateProgram (validate_program.h) found nothing wrong.
std::vector<v1::TableSpec> ProgramTables(const v1::Program& program);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_JOB_PROGRAM_TABLES_H_
