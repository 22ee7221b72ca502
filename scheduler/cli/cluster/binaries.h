// Binaries: finds the daemons' programs, starting from the command line's own program.
//
// Thread safety: pure functions of the disk.
#ifndef CAPSTAN_SCHEDULER_CLI_CLUSTER_BINARIES_H_
#define CAPSTAN_SCHEDULER_CLI_CLUSTER_BINARIES_H_

#include <functional>
#include <string>

#include "absl/status/statusor.h"

namespace capstan::cli {

struct Binaries {
  std::string scheduler;
  std::string server;
  std::string worker;
};

struct BinarySearch {
  std::string self;  // Path of this program, with all links resolved.
  std::string working_directory;
  std::string path;  // Value of the variable PATH.
  std::function<bool(const std::string&)> is_executable;

  static BinarySearch OfProcess();
};

// Returns the path of the program for `role`: "scheduler", "server" or "worker". Searches the same
// places as FindBinaries.
// Errors: kNotFound  names the program and every place that was tried.
absl::StatusOr<std::string> FindBinary(const BinarySearch& search, const std::string& role);

// Searches for each program beside `self` (an installation), in the Bazel output that contains
// `self`, in bazel-bin below the working directory, and in PATH.
// Errors: kNotFound  names the program and every place that was tried.
absl::StatusOr<Binaries> FindBinaries(const BinarySearch& search);

}  // namespace capstan::cli

#endif  // CAPSTAN_SCHEDULER_CLI_CLUSTER_BINARIES_H_
