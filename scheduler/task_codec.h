// Conversions of what tasks and the scheduler tell each other.
//
// What comes in is checked here as far as it does not depend on the job. Thread safety: pure
// functions.
#ifndef CAPSTAN_SCHEDULER_TASK_CODEC_H_
#define CAPSTAN_SCHEDULER_TASK_CODEC_H_

#include "absl/status/statusor.h"
#include "proto/scheduler.pb.h"
#include "scheduler/admission.h"
#include "scheduler/core/messages.h"

namespace capstan::scheduler {

// Errors: kInvalidArgument  a negative rank, a loss that is no number, or scores: lists of unequal
//                           length, bins that do not ascend, counts out of range. Lists of what
//                           a task waits for are cut, not refused; so is its activity's name.
absl::StatusOr<TaskReport> DecodeTaskReport(const v1::SyncTaskRequest& request);
// REQUIRES: reply.status is ok.
void EncodeTaskReply(const TaskReply& reply, const AdmittedJob& job, v1::SyncTaskResponse& out);

void EncodeWait(const Wait& wait, v1::Wait& out);
void EncodeActivity(const Activity& activity, v1::Activity& out);

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_TASK_CODEC_H_
