// FixPluginDigests: chooses at submission the plugin files from which a job takes the rules that
// its optimizers name. From then on only servers with these files hold the job, because another
// file of a plugin may compute other bits.
//
// Thread safety: functions of their arguments.
#ifndef CAPSTAN_SCHEDULER_ADMISSION_PLUGIN_DIGESTS_H_
#define CAPSTAN_SCHEDULER_ADMISSION_PLUGIN_DIGESTS_H_

#include <vector>

#include "absl/status/status.h"
#include "scheduler/admission/admission.h"
#include "scheduler/core/job/views.h"

namespace capstan::scheduler {

// Returns true if an optimizer of the job names a rule of a plugin.
bool NamesPluginRules(const AdmittedJob& job);

// Writes the digest of each such rule into job.spec and job.tables, and the rules into job.plan.
// `nodes`: the cluster now.
// Errors (the job is then of no use):
//   kInvalidArgument     no live server has the rule, or the digest that the job asks for; or live
//                        servers have it from different files. Names the field, the rule and the
//                        servers.
//   kFailedPrecondition  no server is alive.
absl::Status FixPluginDigests(const std::vector<NodeView>& nodes, AdmittedJob& job);

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_ADMISSION_PLUGIN_DIGESTS_H_
