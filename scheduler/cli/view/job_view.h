// Job views: a job's status as text for people.
//
// Thread safety: pure functions (times are shown in the machine's time zone).
#ifndef CAPSTAN_SCHEDULER_CLI_VIEW_JOB_VIEW_H_
#define CAPSTAN_SCHEDULER_CLI_VIEW_JOB_VIEW_H_

#include <string>

#include "absl/time/time.h"
#include "proto/scheduler.pb.h"

namespace capstan::cli {

// One row a job. With results (`job status`), also the newest AUC or RMSE of the test set. kWide:
// also when it was submitted and ended, its output folder, labels and note.
enum class Columns { kNarrow, kWide };
std::string JobTable(const v1::ListJobsResponse& jobs, absl::Time now,
                     Columns columns = Columns::kNarrow);

// "a=1,b=x", by key.
std::string LabelsText(const v1::JobStatus& job);

// Everything: state and reason, progress, the tasks and whom they wait for, results by epoch,
// staleness seen, where the output lies, and the events.
std::string DescribeJob(const v1::JobStatus& job, absl::Time now);

// What a task waits for, since when and at which iteration: "pull at iteration 122 from server-1
// for 3.2 s: needs iteration 119 of rank 0". Empty if it does not wait.
std::string DescribeWait(const v1::Wait& wait);

// How a job ended and what it left: for the end of `submit` and `watch`.
std::string EndSummary(const v1::JobStatus& job);

// "Diverged: loss is NaN ..."; empty without a failure.
std::string DescribeFailure(const v1::Failure& failure);

// "mean 0.8, at most 2"; empty if nothing was counted.
std::string DescribeStaleness(const google::protobuf::RepeatedField<int64_t>& counts);
// "62 % of 9,000 rows were kept by their worker"; empty where workers keep none.
std::string DescribeRows(const v1::JobStatus& job);

// A line for a finished epoch of `job`: "epoch 1/3  train loss 0.7312  train accuracy 74 %  ...".
std::string EpochLine(const v1::EpochResult& result, const v1::JobStatus& job);

}  // namespace capstan::cli

#endif  // CAPSTAN_SCHEDULER_CLI_VIEW_JOB_VIEW_H_
