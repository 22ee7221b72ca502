// Processes: started in the background, recognised later, ended.
//
// A process is its pid and its start time, since the kernel gives pids out again.
// Thread safety: thread-safe.
#ifndef CAPSTAN_SCHEDULER_CLI_PROCESS_H_
#define CAPSTAN_SCHEDULER_CLI_PROCESS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/process/spawn.h"

namespace capstan::cli {

struct ProcessId {
  int pid = 0;
  int64_t start_time = 0;  // Clock ticks since boot.
};

// Starts a program in a session of its own. Errors: those of Spawn.
absl::StatusOr<ProcessId> StartInBackground(SpawnOptions options);

// A zombie counts as gone.
bool IsAlive(const ProcessId& process);

// Sends the signal if the process is still that one.
void SendSignal(const ProcessId& process, int signal);

// Waits until none of them is alive; false if `limit` passes first.
bool AwaitEnd(const std::vector<ProcessId>& processes, absl::Duration limit);

// Kills what is left of the session that began with `leader`, which must have ended: children
// that outlived it. True: there was something.
bool KillSession(const ProcessId& leader);

// "exit code 1", "signal 9 (Killed)" for a child of this process that has ended; empty otherwise.
std::string HowItEnded(const ProcessId& child);

}  // namespace capstan::cli

#endif  // CAPSTAN_SCHEDULER_CLI_PROCESS_H_
