// Event views: format a job's events (failures and their repair) as text for users.
//
// Thread safety: pure functions (times are shown in the machine's time zone).
#ifndef CAPSTAN_SCHEDULER_CLI_VIEW_EVENT_VIEW_H_
#define CAPSTAN_SCHEDULER_CLI_VIEW_EVENT_VIEW_H_

#include <string>

#include "proto/scheduler.pb.h"

namespace capstan::cli {

// Returns the name of a kind for users: DISK_FULL -> "disk full".
std::string EventName(v1::JobEvent::Kind kind);

// Returns one row for each event, oldest first, and the number of forgotten events. Empty: the job
// has no events.
std::string EventTable(const v1::JobStatus& job);

// Returns a line for one event: "14:03:07  server-1  disk full: ...".
std::string EventLine(const v1::JobEvent& event);

}  // namespace capstan::cli

#endif  // CAPSTAN_SCHEDULER_CLI_VIEW_EVENT_VIEW_H_
