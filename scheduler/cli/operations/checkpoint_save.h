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
#include "scheduler/cli/client.h"
#include "scheduler/cli/patience.h"

namespace capstan::cli {

// Asks for a checkpoint and waits until it is complete, however long that is, saying now and then
// that it goes on. A scheduler that is away is asked again, with `patience`: it knows what was
// asked when it comes back. Where it went before it had said what that was, it may take two.
// Errors: kCancelled  a signal came (only if an Interrupts object exists); the checkpoint goes on.
//         kUnavailable, kDeadlineExceeded  the scheduler was away for longer than that.
//         else  the scheduler's: it was given up, or the job has ended.
absl::StatusOr<v1::SaveCheckpointResponse> SaveCheckpoint(SchedulerClient& scheduler,
                                                          const std::string& job_id,
                                                          Patience::Options patience = {});

// The same for a checkpoint that was asked for before (`asked_id`).
absl::StatusOr<v1::SaveCheckpointResponse> AwaitCheckpoint(SchedulerClient& scheduler,
                                                           const std::string& job_id,
                                                           uint64_t asked_id,
                                                           Patience::Options patience = {});

}  // namespace capstan::cli

#endif  // CAPSTAN_SCHEDULER_CLI_OPERATIONS_CHECKPOINT_SAVE_H_
