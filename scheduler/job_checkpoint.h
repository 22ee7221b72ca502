// Job checkpoint: from what the core knows of a finished checkpoint to its manifest, and back to a
// job that goes on from it.
//
// Thread safety: functions of their arguments and of the disk.
#ifndef CAPSTAN_SCHEDULER_JOB_CHECKPOINT_H_
#define CAPSTAN_SCHEDULER_JOB_CHECKPOINT_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/storage/disk.h"
#include "proto/checkpoint.pb.h"
#include "scheduler/admission.h"
#include "scheduler/core/checkpoints.h"
#include "scheduler/core/resume_point.h"

namespace capstan::scheduler {

// `base`: the manifest of publish.base, if there is one: what its parts rest on, and they
// themselves, is what those of the new checkpoint rest on.
// Errors: kDataLoss  the base does not have a part that one of the new checkpoint rests on.
absl::StatusOr<v1::CheckpointManifest> MakeManifest(const CheckpointPublish& publish,
                                                    const AdmittedJob& job, int64_t unix_ms,
                                                    const v1::CheckpointManifest& base);

// Makes the checkpoint complete, durably, once it has looked at each part: a folder that servers do
// not share with this machine is found here, not when somebody needs the checkpoint.
// Errors: kDataLoss  a part is not there or not whole; names it, its writer and the folder.
//         Those of MakeManifest, WriteManifest, and ReadManifest of the base.
absl::Status PublishCheckpoint(Disk& disk, const CheckpointPublish& publish, const AdmittedJob& job,
                               int64_t unix_ms);

// What cannot be removed stays, and is no error: it goes with the next ones.
void RemoveCheckpoints(Disk& disk, const CheckpointRemoval& removal);

// Removes what there is of a checkpoint that was given up. One that became complete all the same
// (its job ended as the manifest was written) stays: somebody may go on from it.
// Errors: the disk's; what could not be removed goes with the next complete checkpoint.
absl::Status RemoveGivenUp(Disk& disk, const std::string& folder);

// Where `job` begins if it goes on from the checkpoint in `folder`.
// Errors: kInvalidArgument  the job differs from the one that was saved in what the checkpoint
//                           rests on (WhyNotRestorable); a line for each.
//         kNotFound, kDataLoss  there is no complete checkpoint, or its manifest is damaged or
//                               names a point that the job cannot be at.
absl::StatusOr<RestoreFrom> FindRestore(Disk& disk, const std::string& folder,
                                        const AdmittedJob& job);

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_JOB_CHECKPOINT_H_
