// SelectJobs: selects and sorts the jobs of a list.
//
// Thread safety: a pure function.
#ifndef CAPSTAN_SCHEDULER_CLI_JOB_JOB_SELECTION_H_
#define CAPSTAN_SCHEDULER_CLI_JOB_JOB_SELECTION_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "proto/scheduler.pb.h"

namespace capstan::cli {

struct JobSelection {
  std::vector<std::string> states;  // "RUNNING" or "running"; empty: every state.
  std::string name;                 // A part of the job's id; empty: any job.
  // "KEY=VALUE", or "KEY" for any value. Selected jobs have all of them. Empty: any job.
  std::vector<std::string> labels;
  // "submitted", "ended" (oldest end first, jobs that have not ended last), "name", or "state" (the
  // order of JobState).
  std::string sort = "submitted";
  int last = 0;  // Select only this many jobs, from the end of the order; 0: all.
};

// Reduces `jobs` to the selected ones, and sorts them.
// Errors: kInvalidArgument  no such state or order; names the valid ones. `jobs` is unchanged.
absl::Status SelectJobs(const JobSelection& selection, v1::ListJobsResponse& jobs);

}  // namespace capstan::cli

#endif  // CAPSTAN_SCHEDULER_CLI_JOB_JOB_SELECTION_H_
