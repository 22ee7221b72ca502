// Job record: what a scheduler without a store needs to take a job up again: the rows that the
// store had of it. Servers keep it beside the job's log, as bytes (TableAssignment.record).
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

// A larger one is not kept: such a job cannot be taken up.
inline constexpr size_t kJobRecordBytesMax = size_t{1} << 20;

struct JobRecord {
  JobId job;
  std::string unique_id;  // JobPlan's.
  Generation routing;     // Of the table in it. Of two records the one with the later table counts,
  int64_t unix_ms = 0;    // else the later one.
  std::string stood;      // JobView::detail at that time.
  StoreRows rows;         // Of the job: LoadJob, DecodeAdmitted.

  bool IsNewerThan(const JobRecord& other) const;
};

// Of a job as `core` has it now. `admitted`: its row of EncodeAdmitted
// (scheduler/admitted_codec.h). REQUIRES: the job runs.
std::string EncodeJobRecord(const SchedulerCore& core, const JobId& job, const StoreWrite& admitted,
                            const Moment& moment);
// Errors: kFailedPrecondition  another release of Capstan wrote it; names both versions.
//         kDataLoss            it cannot be read.
absl::StatusOr<JobRecord> DecodeJobRecord(const std::string& bytes);

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_STORE_JOB_RECORD_H_
