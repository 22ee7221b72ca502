// ValidateJob: everything that can be said of a job without its files and without shapes.
//
// The command line and the scheduler both call it; what it lets through may still name a missing
// file or a kernel larger than its image (common/job/check/check_job.h says that).
#ifndef CAPSTAN_COMMON_JOB_VALIDATE_VALIDATE_H_
#define CAPSTAN_COMMON_JOB_VALIDATE_VALIDATE_H_

#include <vector>

#include "common/job/fields/diagnostic.h"
#include "proto/job.pb.h"

namespace capstan {

// Checks `spec` against the ranges in proto/job.proto. Empty: nothing is wrong. In the order of the
// fields. Never fails and bounds its output: at most kDiagnosticsMax, the last saying how many were
// left out.
std::vector<Diagnostic> ValidateJob(const v1::JobSpec& spec);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_JOB_VALIDATE_VALIDATE_H_
