// Exit codes of the command line, the same for every command.
#ifndef CAPSTAN_SCHEDULER_CLI_CONSOLE_EXIT_CODE_H_
#define CAPSTAN_SCHEDULER_CLI_CONSOLE_EXIT_CODE_H_

#include "absl/status/status.h"

namespace capstan::cli {

inline constexpr int kExitDone = 0;
inline constexpr int kExitFailed = 1;     // The job or the command failed.
inline constexpr int kExitUsage = 2;      // Wrong command line, bad job file, no such job.
inline constexpr int kExitTryAgain = 75;  // A peer cannot be reached; trying again may help.
inline constexpr int kExitSignal = 128;   // + the signal: 130 for Ctrl-C, 143 for SIGTERM.

// The code for an error: 75 for kUnavailable and kDeadlineExceeded, 2 for kInvalidArgument,
// kNotFound and kPermissionDenied, 1 for the rest. REQUIRES: !status.ok().
inline int ExitCodeOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
      return kExitTryAgain;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kPermissionDenied:
      return kExitUsage;
    default:
      return kExitFailed;
  }
}

}  // namespace capstan::cli

#endif  // CAPSTAN_SCHEDULER_CLI_CONSOLE_EXIT_CODE_H_
