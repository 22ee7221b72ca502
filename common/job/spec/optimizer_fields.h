// The numbers that each optimizer of a job file has: ranges and defaults, here and nowhere else.
//
// The job check (ValidateOptimizer) and the servers (server/optimizer/config) read them.
// Thread safety: pure functions.
#ifndef CAPSTAN_COMMON_JOB_SPEC_OPTIMIZER_FIELDS_H_
#define CAPSTAN_COMMON_JOB_SPEC_OPTIMIZER_FIELDS_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/job/fields/field_checker.h"
#include "proto/job.pb.h"

namespace capstan {

// One `optional float` of an optimizer's message in proto/job.proto.
struct OptimizerField {
  absl::string_view name;
  RealRange range;
  float value;  // The default.
};

// The name of the chosen optimizer in Optimizer.kind, such as "adam"; empty if none is chosen.
absl::string_view OptimizerName(const v1::Optimizer& optimizer);

// "sgd, momentum, ...": every name that OptimizerName() may give.
std::string OptimizerNames();

// The numbers of the optimizer of that name, in the order of their checks.
std::vector<OptimizerField> OptimizerFields(absl::string_view name);

// Returns whether the optimizer of that name takes norms over whole tensors. No shard may then cut
// a tensor, and the optimizer has no rule for rows of sparse tables.
bool NeedsWholeTensors(absl::string_view name);

// Returns whether the job file gives that number of the chosen optimizer.
bool HasOptimizerNumber(const v1::Optimizer& optimizer, const OptimizerField& field);

// Returns that number of the chosen optimizer, or its default.
// REQUIRES: `field` is one of OptimizerFields(OptimizerName(optimizer)).
float OptimizerNumber(const v1::Optimizer& optimizer, const OptimizerField& field);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_JOB_SPEC_OPTIMIZER_FIELDS_H_
