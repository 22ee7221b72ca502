// Job record: the store's rows of one job, with which a scheduler that lost its store can recover
// the job. Servers store the record as bytes beside the job's log (TableAssignment.record).
//
// Thread safety: functions of their arguments.
#ifndef CAPSTAN_SCHEDULER_STORE_JOB_RECORD_H_
#define CAPSTAN_SCHEDULER_STORE_JOB_RECORD_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "common/types/ids.h"
#include "scheduler/core/scheduler_core.h"
#include "scheduler/store/archive.h"
#include "scheduler/store/store.h"

namespace capstan::scheduler {

// Servers get no larger record; a job with a larger one cannot be recovered.
inline constexpr size_t kJobRecordBytesMax = size_t{1} << 20;

struct JobRecord {
  JobId job;
  std::string unique_id;  // JobPlan::unique_id.
  Generation routing;     // Generation of the record's routing table.
  int64_t unix_ms = 0;    // Time at which the record was made.
  std::string stood;      // JobView::detail at that time.
  StoreRows rows;         // The job's rows, for LoadJob and DecodeAdmitted.

  // True if this record has a later routing table, or the same table and a later time.
  bool IsNewerThan(const JobRecord& other) const;
};

// Returns the record of a job in its present state. `admitted` is its row of EncodeAdmitted
// (scheduler/admission/admitted_codec.h). REQUIRES: the job runs.
std::string EncodeJobRecord(const SchedulerCore& core, const JobId& job, const StoreWrite& admitted,
                            const Moment& moment);
// Errors: kFailedPrecondition  CheckVersions() refuses it.
//         kDataLoss            it cannot be read.
absl::StatusOr<JobRecord> DecodeJobRecord(const std::string& bytes);

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_STORE_JOB_RECORD_H_
