// ReportPacer: decides when a task reports to the scheduler, and how long a report may take.
//
// Called by SchedulerLink and by the simulator's tasks. Thread safety: thread-compatible.
#ifndef CAPSTAN_WORKER_TASK_REPORTING_REPORT_PACER_H_
#define CAPSTAN_WORKER_TASK_REPORTING_REPORT_PACER_H_

#include <algorithm>
#include <cstdint>

#include "absl/time/time.h"
#include "common/net/node/agent_timing.h"
#include "proto/scheduler.pb.h"

namespace capstan::worker {

struct ReportPace {
  absl::Duration interval = absl::Milliseconds(200);         // While there is work.
  absl::Duration interval_in_need = absl::Milliseconds(50);  // While idle or without routing table.
  absl::Duration retry_max = absl::Seconds(1);               // While the scheduler does not answer.
};

// The pause after a report that was answered after `took`, with news or without. The scheduler
// holds the report of an idle task that knows everything, so such a task reports again at once. So
// does an idle task that got news, to acknowledge them. An idle task whose report was neither held
// nor answered with news must pause, or it would report without end.
inline absl::Duration ReportPause(const v1::SyncTaskRequest& report, bool news, absl::Duration took,
                                  const ReportPace& pace) {
  const bool held = took >= agent_timing::kHeldMin;
  if (report.idle() && (held || news)) return absl::ZeroDuration();
  const bool soon = report.idle() || report.routing_seen() == 0;
  return soon ? std::min(pace.interval, pace.interval_in_need) : pace.interval;
}

class ReportPacer {
 public:
  // The deadline of a report that is the last before the process exits.
  static constexpr absl::Duration kLastTimeout = absl::Seconds(10);

  explicit ReportPacer(const ReportPace& pace = {}) : pace_(pace), pause_(pace.interval) {}

  // A report has ended. `took`: the time from its start to the answer.
  void OnAnswer(const v1::SyncTaskRequest& report, const v1::SyncTaskResponse& answer,
                absl::Duration took) {
    timeout_ = agent_timing::SyncTimeout(answer);
    // A task that cannot use its routing table asks for any, and gets the same until there is a
    // newer one.
    const uint64_t routing = answer.routing().generation();
    const bool news = answer.has_assignment() || routing > routing_told_;
    routing_told_ = std::max(routing_told_, routing);
    pause_ = ReportPause(report, news, took, pace_);
  }
  void OnFailure() { pause_ = std::min(std::max(pause_ * 2, pace_.interval), pace_.retry_max); }

  absl::Duration pause() const { return pause_; }      // From now to the next report.
  absl::Duration timeout() const { return timeout_; }  // The deadline of the next report.

 private:
  const ReportPace pace_;
  absl::Duration pause_;
  uint64_t routing_told_ = 0;  // The newest generation received.
  absl::Duration timeout_ = agent_timing::kFirstSyncTimeout;
};

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_TASK_REPORTING_REPORT_PACER_H_
