// ValidateJob: checks everything in a job that can be checked without its files and without shapes.
//
// The command line and the scheduler both call it. A job that passes may still name a missing file
// or a kernel larger than its image (common/job/check/check_job.h finds these).
// Thread safety: a pure function.
#ifndef CAPSTAN_COMMON_JOB_VALIDATE_VALIDATE_H_
#define CAPSTAN_COMMON_JOB_VALIDATE_VALIDATE_H_

#include <vector>

#include "common/job/fields/diagnostic.h"
#include "proto/job.pb.h"

namespace capstan {

// Checks `spec` against the ranges in proto/job.proto. Returns the errors in the order of the
// fields; empty if there are none. Never fails, and bounds its output: at most kDiagnosticsMax
// entries, the last saying how many errors were left out.
std::vector<Diagnostic> ValidateJob(const v1::JobSpec& spec);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_JOB_VALIDATE_VALIDATE_H_
