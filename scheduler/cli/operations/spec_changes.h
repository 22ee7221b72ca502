// SpecChanges: what a command line wants to be other in a job that goes on.
//
// Thread safety: values, and a function of its arguments and the working directory.
#ifndef CAPSTAN_SCHEDULER_CLI_OPERATIONS_SPEC_CHANGES_H_
#define CAPSTAN_SCHEDULER_CLI_OPERATIONS_SPEC_CHANGES_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/job.pb.h"

namespace capstan::cli {

struct SpecChanges {
  std::vector<std::string> set = {};  // "training.epochs=20", one after the other.
  std::optional<int> servers = {};
  std::optional<int> workers = {};
  std::string output = {};  // Its folder, absolute. Empty: as it is.
};

// The job with them. `name` stands for it in messages.
// Errors: kInvalidArgument  a line for each field that cannot be: as JobFile::Set and ValidateJob
//         say it. What cannot change with a checkpoint's state, the scheduler refuses.
absl::StatusOr<v1::JobSpec> ChangedJob(const std::string& name, v1::JobSpec spec,
                                       const SpecChanges& changes);

}  // namespace capstan::cli

#endif  // CAPSTAN_SCHEDULER_CLI_OPERATIONS_SPEC_CHANGES_H_
