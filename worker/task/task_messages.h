// Converts between a task's plain structs and the control plane's protobuf messages.
#ifndef CAPSTAN_WORKER_TASK_TASK_MESSAGES_H_
#define CAPSTAN_WORKER_TASK_TASK_MESSAGES_H_

#include "absl/status/statusor.h"
#include "common/time/instant.h"
#include "proto/scheduler.pb.h"
#include "worker/core/push_pull_session.h"
#include "worker/core/task_board.h"

namespace capstan::worker {

// Errors: kInvalidArgument  an unknown phase, or a range whose end is before its begin.
absl::StatusOr<Assignment> AssignmentFromProto(const v1::Assignment& proto);

v1::TaskProgress ProgressToProto(const TaskBoard& board);

// Makes a report with the fields that every report has: which task it is, and how far it has come.
// `seen`: the newest revision of the scheduler's store that it was told.
v1::SyncTaskRequest MakeReport(const v1::TaskAssignment& task, const TaskBoard& board,
                               bool prepared, const v1::StoreRevision& seen);

v1::Wait WaitToProto(const SessionWait& wait, Instant now);

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_TASK_TASK_MESSAGES_H_
