// Processes: starts processes in the background, recognises them later, and ends them.
//
// A process is identified by its pid and its start time, because the kernel reuses pids.
// Thread safety: thread-safe.
#ifndef CAPSTAN_SCHEDULER_CLI_SETTINGS_PROCESS_H_
#define CAPSTAN_SCHEDULER_CLI_SETTINGS_PROCESS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/process/subprocess/spawn.h"

namespace capstan::cli {

struct ProcessId {
  int pid = 0;
  int64_t start_time = 0;  // Clock ticks since boot.
};

// Starts a program in a session of its own. Errors: those of Spawn.
absl::StatusOr<ProcessId> StartInBackground(SpawnOptions options);

// Returns false for a zombie.
bool IsAlive(const ProcessId& process);

// Sends the signal if that process is still alive.
void SendSignal(const ProcessId& process, int signal);

// Waits until none of the processes is alive. Returns false if `limit` passes first.
bool AwaitEnd(const std::vector<ProcessId>& processes, absl::Duration limit);

// Kills the rest of the session that `leader` began: processes that outlived it. REQUIRES: `leader`
// has ended. Returns true if it killed a process.
bool KillSession(const ProcessId& leader);

// Returns "exit code 1" or "signal 9 (Killed)" for an ended child of this process; otherwise empty.
std::string HowItEnded(const ProcessId& child);

}  // namespace capstan::cli

#endif  // CAPSTAN_SCHEDULER_CLI_SETTINGS_PROCESS_H_
