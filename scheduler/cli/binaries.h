// Binaries: where the daemons' programs lie, seen from the command line's own.
//
// Thread safety: pure functions of the disk.
#ifndef CAPSTAN_SCHEDULER_CLI_BINARIES_H_
#define CAPSTAN_SCHEDULER_CLI_BINARIES_H_

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
  std::string self;  // Path of this program, links resolved.
  std::string working_directory;
  std::string path;  // The variable PATH.
  std::function<bool(const std::string&)> is_executable;

  static BinarySearch OfProcess();
};

// The program of `role`: "scheduler", "server" or "worker". Looked for as FindBinaries does.
// Errors: kNotFound  names the program and every place that was tried.
absl::StatusOr<std::string> FindBinary(const BinarySearch& search, const std::string& role);

// Each program is looked for beside `self` (an installation), in the folders of Bazel's output that
// `self` lies in, in bazel-bin below the working directory, and in PATH.
// Errors: kNotFound  names the program and every place that was tried.
absl::StatusOr<Binaries> FindBinaries(const BinarySearch& search);

}  // namespace capstan::cli

#endif  // CAPSTAN_SCHEDULER_CLI_BINARIES_H_
