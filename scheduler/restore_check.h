// Restore check: which fields of a job may differ from those of the job whose checkpoint it goes
// on from. Positions, counts, rows and the optimizer's state mean nothing without the others.
//
// Thread safety: a pure function.
#ifndef CAPSTAN_SCHEDULER_RESTORE_CHECK_H_
#define CAPSTAN_SCHEDULER_RESTORE_CHECK_H_

#include <string>
#include <vector>

#include "proto/checkpoint.pb.h"
#include "scheduler/admission.h"

namespace capstan::scheduler {

// Why `job` cannot go on from the checkpoint: a line for each field, with what it is, what the
// checkpoint has, and the reason. Empty: it can.
std::vector<std::string> WhyNotRestorable(const v1::CheckpointManifest& manifest,
                                          const AdmittedJob& job);

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_RESTORE_CHECK_H_
