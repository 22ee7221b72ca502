// MakeSmallJob: a job that the scheduler admits, softmax regression on a few 4x4 images.
#ifndef CAPSTAN_SCHEDULER_TESTING_SMALL_JOB_H_
#define CAPSTAN_SCHEDULER_TESTING_SMALL_JOB_H_

#include <string>

#include "proto/job.pb.h"

namespace capstan::scheduler::testing {

inline constexpr int kSmallTrainCount = 40;
inline constexpr int kSmallTestCount = 20;

// Writes IDX files of the two splits into `folder` and returns a job of one worker, two epochs,
// SSP(2).
v1::JobSpec MakeSmallJob(const std::string& folder);

}  // namespace capstan::scheduler::testing

#endif  // CAPSTAN_SCHEDULER_TESTING_SMALL_JOB_H_
