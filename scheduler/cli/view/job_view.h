// Job views: format the status of jobs as text for users.
//
// Thread safety: pure functions (times are shown in the machine's time zone).
#ifndef CAPSTAN_SCHEDULER_CLI_VIEW_JOB_VIEW_H_
#define CAPSTAN_SCHEDULER_CLI_VIEW_JOB_VIEW_H_

#include <string>

#include "absl/time/time.h"
#include "proto/scheduler.pb.h"

namespace capstan::cli {

// Returns one row for each job, with its owner if any job has one. If the jobs have results (`job
// status`), the row also has the best epoch's AUC or RMSE of the test set, else the newest one.
// kWide adds the times of submission and end, the output folder, labels and the note.
enum class Columns { kNarrow, kWide };
std::string JobTable(const v1::ListJobsResponse& jobs, absl::Time now,
                     Columns columns = Columns::kNarrow);

// Returns "a=1,b=x", sorted by key.
std::string LabelsText(const v1::JobStatus& job);

// Returns the whole status: state and reason, progress, the tasks and the peers that they wait for,
// results by epoch, observed staleness, the output's place, and the events.
std::string DescribeJob(const v1::JobStatus& job, absl::Time now);

// Describes a task's wait: "pull at iteration 122 from server-1 for 3.2 s: needs iteration 119 of
// rank 0". Empty if it does not wait.
std::string DescribeWait(const v1::Wait& wait);

// Describes a job's end and its output. `submit` and `watch` print it last.
std::string EndSummary(const v1::JobStatus& job);

// Returns "Diverged: loss is NaN ...". Empty without a failure.
std::string DescribeFailure(const v1::Failure& failure);

// Returns "mean 0.8, at most 2". Empty if nothing was counted.
std::string DescribeStaleness(const google::protobuf::RepeatedField<int64_t>& counts);
// Returns "62 % of 9,000 rows were kept by their worker". Empty if no rows were counted.
std::string DescribeRows(const v1::JobStatus& job);

// Returns a line for a finished epoch of `job`: "epoch 1/3  train loss 0.7312  train accuracy 74.00
// %  ...".
std::string EpochLine(const v1::EpochResult& result, const v1::JobStatus& job);

}  // namespace capstan::cli

#endif  // CAPSTAN_SCHEDULER_CLI_VIEW_JOB_VIEW_H_
