// SpecChanges: the changes that the user makes to a job that goes on from a checkpoint.
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
  std::vector<std::string> set = {};  // "training.epochs=20"; applied in order.
  std::optional<int> servers = {};
  std::optional<int> workers = {};
  std::string output = {};  // Absolute path of the output folder. Empty: unchanged.
};

// Returns the job with the changes. `name` is the job's name in messages.
// Errors: kInvalidArgument  a line for each invalid field, from JobFile::Set and ValidateJob. The
//         scheduler, not this function, refuses changes that do not fit a checkpoint's state.
absl::StatusOr<v1::JobSpec> ChangedJob(const std::string& name, v1::JobSpec spec,
                                       const SpecChanges& changes);

}  // namespace capstan::cli

#endif  // CAPSTAN_SCHEDULER_CLI_OPERATIONS_SPEC_CHANGES_H_
