// SaveCheckpoint: takes a checkpoint of a running job and waits for it.
//
// Thread safety: main thread.
#ifndef CAPSTAN_SCHEDULER_CLI_OPERATIONS_CHECKPOINT_SAVE_H_
#define CAPSTAN_SCHEDULER_CLI_OPERATIONS_CHECKPOINT_SAVE_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/scheduler.pb.h"
#include "scheduler/cli/client/client.h"
#include "scheduler/cli/client/patience.h"

namespace capstan::cli {

// Requests a checkpoint and waits without a limit until it is complete. Prints a note from time to
// time. While the scheduler is away, the call is repeated with `patience`; a scheduler that returns
// knows the earlier request. If it died before it answered the request, it may take two
// checkpoints.
// Errors: kCancelled  a signal came (only if an Interrupts object exists); the checkpoint goes on.
//         kUnavailable, kDeadlineExceeded  the scheduler was away for longer than `patience`.
//         else  the scheduler's error: the checkpoint was given up, or the job has ended.
absl::StatusOr<v1::SaveCheckpointResponse> SaveCheckpoint(SchedulerClient& scheduler,
                                                          const std::string& job_id,
                                                          Patience::Options patience = {});

// Same as SaveCheckpoint(), for a checkpoint that was requested earlier (`asked_id`).
absl::StatusOr<v1::SaveCheckpointResponse> AwaitCheckpoint(SchedulerClient& scheduler,
                                                           const std::string& job_id,
                                                           uint64_t asked_id,
                                                           Patience::Options patience = {});

}  // namespace capstan::cli

#endif  // CAPSTAN_SCHEDULER_CLI_OPERATIONS_CHECKPOINT_SAVE_H_
