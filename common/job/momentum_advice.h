// AdviseOnMomentum: warns of a momentum that is too high for the job's asynchronous workers.
//
// In SSP and ASP each of n workers pushes a gradient of weights that the others have changed
// meanwhile, which acts like more momentum: Mitliagkas et al., Asynchrony begets Momentum, with an
// Application to Deep Learning (Allerton 2016), whose remedy is to lower the explicit momentum as n
// grows. How far is chosen here so that the whole step of a gradient, lr / (1 - mu), counted over
// the pushes of n workers, is that of one BSP update with the momentum 0.9 and the same rate:
//
//     n * lr / (1 - mu) = lr / (1 - 0.9)   =>   mu = 1 - n * (1 - 0.9), but not below 0.
//
// The table in tests/convergence/README.md shows what it brings.
// Thread safety: a pure function.
#ifndef CAPSTAN_COMMON_JOB_MOMENTUM_ADVICE_H_
#define CAPSTAN_COMMON_JOB_MOMENTUM_ADVICE_H_

#include <optional>
#include <string>

#include "proto/job.pb.h"

namespace capstan {

// The sentence for the job's owner, with the number to use. None if the job is BSP or has one
// worker, if its optimizer is neither `momentum` nor `nesterov`, and if its momentum is low enough.
// REQUIRES: ValidateJob finds nothing in `spec`.
std::optional<std::string> AdviseOnMomentum(const v1::JobSpec& spec);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_JOB_MOMENTUM_ADVICE_H_
