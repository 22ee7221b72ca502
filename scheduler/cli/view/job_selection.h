// SelectJobs: which jobs a list shows, and in which order.
//
// Thread safety: pure.
#ifndef CAPSTAN_SCHEDULER_CLI_VIEW_JOB_SELECTION_H_
#define CAPSTAN_SCHEDULER_CLI_VIEW_JOB_SELECTION_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "proto/scheduler.pb.h"

namespace capstan::cli {

struct JobSelection {
  std::vector<std::string> states;  // "RUNNING" or "running"; empty: every state.
  std::string name;                 // A part of the job's id; empty: any.
  // "KEY=VALUE", or "KEY" with any value; a job has all of them. Empty: any job.
  std::vector<std::string> labels;
  // "submitted", "ended" (the oldest first; those that go on come last), "name", "state" (as in
  // JobState, each by submission).
  std::string sort = "submitted";
  int last = 0;  // Only so many, the last of the order; 0: all.
};

// Leaves in `jobs` what is selected.
// Errors: kInvalidArgument  no such state or order; names those there are. `jobs` is as it was.
absl::Status SelectJobs(const JobSelection& selection, v1::ListJobsResponse& jobs);

}  // namespace capstan::cli

#endif  // CAPSTAN_SCHEDULER_CLI_VIEW_JOB_SELECTION_H_
