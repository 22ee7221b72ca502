// Conversions of the status of jobs and nodes, which users see.
//
// Thread safety: pure functions.
#ifndef CAPSTAN_SCHEDULER_CODEC_STATUS_CODEC_H_
#define CAPSTAN_SCHEDULER_CODEC_STATUS_CODEC_H_

#include "absl/time/time.h"
#include "common/time/instant.h"
#include "proto/scheduler.pb.h"
#include "scheduler/admission/admission.h"
#include "scheduler/core/job/views.h"
#include "scheduler/core/messages/messages.h"

namespace capstan::scheduler {

// Relates the steady clock, on which the core runs, to the calendar.
class Calendar {
 public:
  // `now` and `time` denote the same moment.
  Calendar(Instant now, absl::Time time) : origin_(time - now.SinceOrigin()) {}
  int64_t UnixMs(Instant instant) const {
    return absl::ToUnixMillis(origin_ + instant.SinceOrigin());
  }

 private:
  absl::Time origin_;
};

v1::JobState EncodeJobState(JobState state);
void EncodeEpochResult(const EpochResult& result, v1::EpochResult& out);

// kList leaves out tasks, results, events and the specification.
enum class StatusDetail { kList, kWhole };
void EncodeJobStatus(const JobView& view, const AdmittedJob& job, const Calendar& calendar,
                     Instant now, StatusDetail detail, v1::JobStatus& out);

void EncodeNodeStatus(const NodeView& view, Instant now, v1::NodeStatus& out);
// REQUIRES: reply.routing is set.
void EncodeSnapshotReply(const SnapshotReply& reply, const AdmittedJob& job,
                         v1::OpenSnapshotResponse& out);
void EncodeDrainReply(const DrainReply& reply, v1::DrainNodeResponse& out);

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_CODEC_STATUS_CODEC_H_
