// Conversions of the messages between tasks and the scheduler.
//
// Decoding checks everything that does not depend on the job. Thread safety: pure functions.
#ifndef CAPSTAN_SCHEDULER_CODEC_TASK_CODEC_H_
#define CAPSTAN_SCHEDULER_CODEC_TASK_CODEC_H_

#include "absl/status/statusor.h"
#include "proto/scheduler.pb.h"
#include "scheduler/admission/admission.h"
#include "scheduler/core/messages/messages.h"

namespace capstan::scheduler {

// A list of awaited shards that is too long is cut, not refused; so is the activity's name.
// Errors: kInvalidArgument  a negative rank, a loss that is not finite, impossible outputs, scores
//                           with lists of unequal length, bins that do not ascend or counts out of
//                           range, or updates of more tables than kTablesReportedMax.
absl::StatusOr<TaskReport> DecodeTaskReport(const v1::SyncTaskRequest& request);
// REQUIRES: reply.status is ok.
void EncodeTaskReply(const TaskReply& reply, const AdmittedJob& job, v1::SyncTaskResponse& out);

void EncodeWait(const Wait& wait, v1::Wait& out);
void EncodeActivity(const Activity& activity, v1::Activity& out);

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_CODEC_TASK_CODEC_H_
