// JobDifferences: the fields in which two jobs differ.
//
// Thread safety: a pure function.
#ifndef CAPSTAN_SCHEDULER_CLI_DIFF_JOB_DIFFERENCES_H_
#define CAPSTAN_SCHEDULER_CLI_DIFF_JOB_DIFFERENCES_H_

#include <string>
#include <vector>

#include "proto/job.pb.h"

namespace capstan::cli {

struct JobDifferences {
  // Lines such as "training.seed: 1 -> 2", for the fields that may change the computed values.
  std::vector<std::string> of_training;
  // Lines for the fields with which BSP promises the same bits: resources (except device, gpus and
  // threads), durability, checkpoints, and how messages travel.
  std::vector<std::string> others;
};

// Compares the specifications with all defaults written out. Name, labels, note, output and the
// checkpoints' folder are left out.
JobDifferences CompareJobs(const v1::JobSpec& first, const v1::JobSpec& second);

}  // namespace capstan::cli

#endif  // CAPSTAN_SCHEDULER_CLI_DIFF_JOB_DIFFERENCES_H_
