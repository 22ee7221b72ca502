// FailureOf: finds the named reason for a task's error, and the message that a user reads when a
// job fails.
// Thread safety: a pure function.
#ifndef CAPSTAN_WORKER_TASK_FAILURES_H_
#define CAPSTAN_WORKER_TASK_FAILURES_H_

#include "absl/status/status.h"
#include "proto/scheduler.pb.h"

namespace capstan::worker {

// kInvalidArgument, kUnimplemented -> USER_ERROR; kDataLoss, kNotFound, kPermissionDenied ->
// BAD_DATA; kOutOfRange -> DIVERGED (a loss or gradient that is not finite); kResourceExhausted ->
// OUT_OF_MEMORY; kDeadlineExceeded -> HANG; kUnavailable while computing on a GPU -> DEVICE_LOST,
// with the GPUs that the status names (LostGpusOf); any error while writing the model ->
// OUTPUT_FAILED; any other error -> INTERNAL.
// REQUIRES: !status.ok().
enum class FailedAt { kAnything, kComputingOnGpu, kWritingModel };
v1::Failure FailureOf(const absl::Status& status, FailedAt at = FailedAt::kAnything);

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_TASK_FAILURES_H_
