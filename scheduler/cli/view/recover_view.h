// Recover view: jobs of another cluster whose logs are here, as text for people.
//
// Thread safety: pure functions.
#ifndef CAPSTAN_SCHEDULER_CLI_VIEW_RECOVER_VIEW_H_
#define CAPSTAN_SCHEDULER_CLI_VIEW_RECOVER_VIEW_H_

#include <string>

#include "proto/scheduler.pb.h"

namespace capstan::cli {

// One row a job; then what keeps those from being taken up that cannot be, and what to do.
std::string RecoverableTable(const v1::ListRecoverableResponse& list);

}  // namespace capstan::cli

#endif  // CAPSTAN_SCHEDULER_CLI_VIEW_RECOVER_VIEW_H_
