// Admitted codec: encodes an admitted job as a row of the store, so that a restarted scheduler
// needs neither the job file nor the data files.
//
//   "admitted/<id>"  written with the job's submission, and with a change of its labels
//
// Thread safety: pure functions.
#ifndef CAPSTAN_SCHEDULER_ADMISSION_ADMITTED_CODEC_H_
#define CAPSTAN_SCHEDULER_ADMISSION_ADMITTED_CODEC_H_

#include "absl/status/statusor.h"
#include "scheduler/admission/admission.h"
#include "scheduler/core/store_write.h"
#include "scheduler/store/store.h"

namespace capstan::scheduler {

StoreWrite EncodeAdmitted(const AdmittedJob& job);
StoreWrite ForgetAdmitted(const JobId& job);

// The same for the job's record, which leaves the scheduler: it has no capability key.
StoreWrite EncodeAdmittedWithoutKey(const AdmittedJob& job);

// Returns all admitted jobs of `rows`. Jobs of older stores, and of records, have no capability
// key.
// Errors: kDataLoss  a row cannot be read, or holds another job than its key says; names it.
absl::StatusOr<AdmittedJobs> DecodeAdmitted(const StoreRows& rows);

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_ADMISSION_ADMITTED_CODEC_H_
