// Recover view: formats the jobs of another cluster, whose logs are here, as text for users.
//
// Thread safety: pure functions.
#ifndef CAPSTAN_SCHEDULER_CLI_VIEW_RECOVER_VIEW_H_
#define CAPSTAN_SCHEDULER_CLI_VIEW_RECOVER_VIEW_H_

#include <string>

#include "proto/scheduler.pb.h"

namespace capstan::cli {

// Returns one row for each job, then the reasons for jobs that cannot be recovered, then the
// commands that recover the others.
std::string RecoverableTable(const v1::ListRecoverableResponse& list);

}  // namespace capstan::cli

#endif  // CAPSTAN_SCHEDULER_CLI_VIEW_RECOVER_VIEW_H_
