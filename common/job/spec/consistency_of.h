// Makes the ConsistencyRule of a job, and checks the options in its `consistency`.
// Thread safety: pure functions.
#ifndef CAPSTAN_COMMON_JOB_SPEC_CONSISTENCY_OF_H_
#define CAPSTAN_COMMON_JOB_SPEC_CONSISTENCY_OF_H_

#include <cstdint>
#include <string>

#include "common/job/fields/field_checker.h"
#include "common/types/consistency_rule.h"
#include "proto/job.pb.h"

namespace capstan {

// The rule may be asked also of a job that has not been checked, or is wrong.
ConsistencyRule ConsistencyOf(const v1::JobSpec& job);
// `slots`: micro-batches an iteration, if it is BSP.
ConsistencyRule ConsistencyOf(const v1::Consistency& consistency, int32_t slots);

// Checks the options of all modes. `check` is for "consistency".
void ValidateConsistency(const v1::JobSpec& spec, FieldChecker check);

// "bsp", "ssp" or "asp", as in job files.
const char* NameOf(ConsistencyMode mode);
// The same with its bound: "ssp(2)".
std::string NameOf(const ConsistencyRule& rule);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_JOB_SPEC_CONSISTENCY_OF_H_
