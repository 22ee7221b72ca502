// ReportPause: decides how long a task waits between two reports to the scheduler.
//
// Thread safety: pure.
#ifndef CAPSTAN_WORKER_TASK_REPORT_PAUSE_H_
#define CAPSTAN_WORKER_TASK_REPORT_PAUSE_H_

#include <algorithm>

#include "absl/time/time.h"
#include "common/net/agent_timing.h"
#include "proto/scheduler.pb.h"

namespace capstan::worker {

struct ReportPace {
  absl::Duration interval = absl::Milliseconds(200);         // While there is work.
  absl::Duration interval_in_need = absl::Milliseconds(50);  // While idle or without routing table.
};

// The pause after a report that got `answer` after `took`. The scheduler holds the report of an
// idle task that knows everything, so such a task reports again at once. So does an idle task that
// got news, to acknowledge them. An idle task whose report was neither held nor answered with news
// must pause, or it would report without end.
inline absl::Duration ReportPause(const v1::SyncTaskRequest& report,
                                  const v1::SyncTaskResponse& answer, absl::Duration took,
                                  const ReportPace& pace) {
  const bool held = took >= agent_timing::kHeldMin;
  const bool told = answer.has_assignment() || answer.has_routing();
  if (report.idle() && (held || told)) return absl::ZeroDuration();
  const bool soon = report.idle() || report.routing_seen() == 0;
  return soon ? std::min(pace.interval, pace.interval_in_need) : pace.interval;
}

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_TASK_REPORT_PAUSE_H_
