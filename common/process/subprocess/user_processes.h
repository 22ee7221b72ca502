// Processes of a user: how a child becomes one, and how all of them are ended.
//
// For user numbers without an account: each runs the programs of one job, and all that such a
// program has started, in any process group or session, belongs to the same user.
// Thread safety: functions without state.
#ifndef CAPSTAN_COMMON_PROCESS_SUBPROCESS_USER_PROCESSES_H_
#define CAPSTAN_COMMON_PROCESS_SUBPROCESS_USER_PROCESSES_H_

#include <sys/types.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace capstan {

// Makes this process one of `user`, with the group of the same number, no supplementary groups and
// no capabilities. False: it is not, and errno says why; the process must then end.
// For a child between fork and exec: it makes system calls and nothing else. It concerns the
// calling thread alone. REQUIRES: user > 0.
bool BecomeUser(uid_t user);

// Sends SIGKILL to all processes of `user` at once, so that none can start another one, and waits
// until they are gone. Needs the rights of root. REQUIRES: user > 0.
// Errors: kUnavailable       a process cannot be started or /proc not be read; says why.
//         kDeadlineExceeded  a process is still there after two seconds; names it.
absl::Status KillProcessesOf(uid_t user);

// Whether a process of `user` runs. Errors: kUnavailable  /proc cannot be read.
absl::StatusOr<bool> HasProcesses(uid_t user);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_PROCESS_SUBPROCESS_USER_PROCESSES_H_
