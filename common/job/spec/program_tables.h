// ProgramTables: how the tensors of a user's program lie in the job's tables.
// Thread safety: a pure function.
#ifndef CAPSTAN_COMMON_JOB_SPEC_PROGRAM_TABLES_H_
#define CAPSTAN_COMMON_JOB_SPEC_PROGRAM_TABLES_H_

#include <vector>

#include "proto/job.pb.h"
#include "proto/parameter_server.pb.h"

namespace capstan {

// Returns whether some parameters of the job are rows.
inline bool HasRows(const v1::JobSpec& job) {
  return job.model().has_sparse() || !job.program().rows().empty();
}

// Returns whether the optimizer of this number (v1::Program::Tensor::optimizer) updates rows.
bool UpdatesRows(const v1::JobSpec& job, int number);

// Returns the tables in the order of their indices: a dense table for each optimizer that
// parameters have ("parameters" for the job's, "parameters-N" for the N-th of the program's), or
// with own_pace one of its name for each of the parameters; "statistics" if the program has
// averages, and the tables of rows. Tensors lie end to end in the program's order; their initial
// values are 0.
// REQUIRES: ValidateProgram found nothing wrong.
std::vector<v1::TableSpec> ProgramTables(const v1::Program& program);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_JOB_SPEC_PROGRAM_TABLES_H_
