// Event views: what went wrong with a job and how it was mended, as text for people.
//
// Thread safety: pure functions (times are shown in the machine's time zone).
#ifndef CAPSTAN_SCHEDULER_CLI_VIEW_EVENT_VIEW_H_
#define CAPSTAN_SCHEDULER_CLI_VIEW_EVENT_VIEW_H_

#include <string>

#include "proto/scheduler.pb.h"

namespace capstan::cli {

// The word that users see for a kind: DISK_FULL -> "disk full".
std::string EventName(v1::JobEvent::Kind kind);

// One row an event, the oldest first, and how many are not kept any more. Empty: there are none.
std::string EventTable(const v1::JobStatus& job);

// A line for one event: "14:03:07  server-1  disk full: ...".
std::string EventLine(const v1::JobEvent& event);

}  // namespace capstan::cli

#endif  // CAPSTAN_SCHEDULER_CLI_VIEW_EVENT_VIEW_H_
