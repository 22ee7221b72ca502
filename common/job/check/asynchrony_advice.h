// AdviseOnAsynchrony: warns of an optimizer whose numbers fit BSP in a job that is SSP or ASP.
//
// In SSP and ASP each of n workers pushes a gradient of weights that the others have changed
// meanwhile, which acts like more momentum: Mitliagkas et al., Asynchrony begets Momentum, with an
// Application to Deep Learning (Allerton 2016), whose remedy is to lower the explicit momentum as n
// grows. How far is chosen here so that the whole step of a gradient, lr / (1 - mu), counted over
// the pushes of n workers, is that of one BSP update with the momentum 0.9 and the same rate:
//
//     n * lr / (1 - mu) = lr / (1 - 0.9)   =>   mu = 1 - n * (1 - 0.9), but not below 0.
//
// rate_by_staleness divides lr by the updates since the pull, n - 1 where all workers have one
// pace; n is then n / max(1, n - 1) in the formula.
//
// Schedules count updates. Where BSP makes one of n micro-batches, SSP and ASP make n, so that a
// cosine that was written for BSP ends after one n-th of the job.
//
// The table in tests/convergence/README.md shows what both bring.
// Thread safety: a pure function.
#ifndef CAPSTAN_COMMON_JOB_CHECK_ASYNCHRONY_ADVICE_H_
#define CAPSTAN_COMMON_JOB_CHECK_ASYNCHRONY_ADVICE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "proto/job.pb.h"

namespace capstan {

// Sentences for the job's owner, each with the number to use. None if the job is BSP or has one
// worker. Otherwise one if its optimizer is `momentum` or `nesterov` with too high a momentum, and
// one if its cosine ends before three quarters of the job's pushes.
//   samples  of its training data
// REQUIRES: ValidateJob finds nothing in `spec`; samples >= 1.
std::vector<std::string> AdviseOnAsynchrony(const v1::JobSpec& spec, int64_t samples);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_JOB_CHECK_ASYNCHRONY_ADVICE_H_
