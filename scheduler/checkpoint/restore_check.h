// Restore check: compares a job with the job whose checkpoint it restores. Some fields must be
// equal, because only they give the checkpoint's positions, counts, rows and optimizer state a
// meaning.
//
// Thread safety: a pure function.
#ifndef CAPSTAN_SCHEDULER_CHECKPOINT_RESTORE_CHECK_H_
#define CAPSTAN_SCHEDULER_CHECKPOINT_RESTORE_CHECK_H_

#include <string>
#include <vector>

#include "proto/checkpoint.pb.h"
#include "scheduler/admission/admission.h"

namespace capstan::scheduler {

// Returns the reasons why `job` cannot go on from the checkpoint: one line for each field, with its
// value, the checkpoint's value and the reason. Empty: it can.
std::vector<std::string> WhyNotRestorable(const v1::CheckpointManifest& manifest,
                                          const AdmittedJob& job);

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_CHECKPOINT_RESTORE_CHECK_H_
