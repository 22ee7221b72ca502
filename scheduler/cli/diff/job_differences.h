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
  // Lines such as "training.seed: 1 -> 2". Those of the first list may change what is computed.
  std::vector<std::string> of_training;
  // Resources but for device and threads, durability, checkpoints and ways of messages: BSP
  // promises the same bits whatever they are.
  std::vector<std::string> others;
};

// Compares the specifications with all defaults written out. Names, labels, notes and output
// folders are left out.
JobDifferences CompareJobs(const v1::JobSpec& first, const v1::JobSpec& second);

}  // namespace capstan::cli

#endif  // CAPSTAN_SCHEDULER_CLI_DIFF_JOB_DIFFERENCES_H_
