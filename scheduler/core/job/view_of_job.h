// The view of a running or ended job for users. It only reads the job's parts.
//
// Thread safety: functions of their arguments.
#ifndef CAPSTAN_SCHEDULER_CORE_JOB_VIEW_OF_JOB_H_
#define CAPSTAN_SCHEDULER_CORE_JOB_VIEW_OF_JOB_H_

#include <string>

#include "common/time/instant.h"
#include "scheduler/core/job/job_parts.h"
#include "scheduler/core/job/views.h"

namespace capstan::scheduler {

JobView ViewOf(const JobParts& job, Instant now);  // `submitted` is the caller's to fill.
// Says in one sentence what the job does or waits for. REQUIRES: it has not ended.
std::string DetailOf(const JobParts& job, Instant now);

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_CORE_JOB_VIEW_OF_JOB_H_
