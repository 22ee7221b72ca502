// Job checkpoint: makes the manifest of a checkpoint from the core's CheckpointPublish, and the
// core's RestoreFrom from a manifest.
//
// Thread safety: functions of their arguments and of the disk.
#ifndef CAPSTAN_SCHEDULER_CHECKPOINT_JOB_CHECKPOINT_H_
#define CAPSTAN_SCHEDULER_CHECKPOINT_JOB_CHECKPOINT_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/storage/disk.h"
#include "proto/checkpoint.pb.h"
#include "scheduler/admission/admission.h"
#include "scheduler/core/checkpoints/checkpoints.h"
#include "scheduler/core/plan/resume_point.h"

namespace capstan::scheduler {

// Returns the manifest of the new checkpoint. `base` is the manifest of publish.base, empty if no
// part is incremental. An incremental part of the new checkpoint rests on the base's part of the
// same shard, and on all parts that the base's part rests on.
// Errors: kDataLoss  the base lacks a part that the new checkpoint rests on.
absl::StatusOr<v1::CheckpointManifest> MakeManifest(const CheckpointPublish& publish,
                                                    const AdmittedJob& job, int64_t unix_ms,
                                                    const v1::CheckpointManifest& base);

// Checks that each part is in the folder, then writes the manifest durably, which makes the
// checkpoint complete. The check reports now, and not at the first restore, that servers write into
// a folder which they do not share with this machine.
// Errors: kDataLoss  a part is missing or incomplete; names it, its writer and the folder.
//         Those of MakeManifest, WriteManifest, and ReadManifest of the base.
absl::Status PublishCheckpoint(Disk& disk, const CheckpointPublish& publish, const AdmittedJob& job,
                               int64_t unix_ms);

// Removes the job's older checkpoints. A checkpoint that cannot be removed is no error: the next
// removal tries again.
void RemoveCheckpoints(Disk& disk, const CheckpointRemoval& removal);

// Removes the files of a checkpoint that was given up. A checkpoint that became complete all the
// same (its job ended while the manifest was being written) stays, because a job may go on from it.
// Errors: those of the disk; the next complete checkpoint removes the rest.
absl::Status RemoveGivenUp(Disk& disk, const std::string& folder);

// Returns the point at which `job` begins if it goes on from the checkpoint in `folder`.
// Errors: kInvalidArgument  the job differs from the saved one in a field that must be equal
//                           (WhyNotRestorable); one line for each.
//         kNotFound, kDataLoss  there is no complete checkpoint, or its manifest is damaged or
//                               names a point that the job cannot reach.
absl::StatusOr<RestoreFrom> FindRestore(Disk& disk, const std::string& folder,
                                        const AdmittedJob& job);

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_CHECKPOINT_JOB_CHECKPOINT_H_
