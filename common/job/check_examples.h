// CheckExamples: the part of CheckJob for jobs on examples: reads them, and fits the model to them.
// Thread safety: a pure function of the job and its files.
#ifndef CAPSTAN_COMMON_JOB_CHECK_EXAMPLES_H_
#define CAPSTAN_COMMON_JOB_CHECK_EXAMPLES_H_

#include "common/job/check_job.h"
#include "proto/job.pb.h"

namespace capstan {

// REQUIRES: ValidateJob found nothing wrong; the job's model is sparse.
JobCheck CheckExamples(const v1::JobSpec& spec);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_JOB_CHECK_EXAMPLES_H_
