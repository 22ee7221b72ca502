// CheckExamples: the part of CheckJob for jobs on examples: reads them, and fits the model to them.
// CheckRowTables: the part for all jobs with rows.
// Thread safety: pure functions of the job and its files.
#ifndef CAPSTAN_COMMON_JOB_CHECK_CHECK_EXAMPLES_H_
#define CAPSTAN_COMMON_JOB_CHECK_CHECK_EXAMPLES_H_

#include <string>
#include <vector>

#include "common/job/check/check_job.h"
#include "common/job/fields/diagnostic.h"
#include "proto/job.pb.h"
#include "proto/parameter_server.pb.h"

namespace capstan {

// REQUIRES: ValidateJob found nothing wrong; the job's model is sparse.
JobCheck CheckExamples(const v1::JobSpec& spec);

// Checks tables of rows for limits that they may exceed although each field is in its range.
// `field` is the job's field with the rules for creating and removing rows.
void CheckRowTables(const std::vector<v1::TableSpec>& tables, const std::string& field,
                    std::vector<Diagnostic>* diagnostics);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_JOB_CHECK_CHECK_EXAMPLES_H_
