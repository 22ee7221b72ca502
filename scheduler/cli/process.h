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

namespace capstan::cli {

struct ProcessId {
  int pid = 0;
  int64_t start_time = 0;  // Clock ticks since boot.
};

struct SpawnOptions {
  std::vector<std::string> command;  // [0] is the path of the program.
  std::string directory;             // Its working directory.
  std::string output;                // File that takes its standard output and error; appended to.
  // It gets SIGTERM when this process ends, however that happens.
  bool end_with_parent = false;
};

// Starts a program in a session of its own (a terminal's Ctrl-C does not reach it), with no input
// and default signal handling.
// Errors: those of the operating system, naming the program or the file.
absl::StatusOr<ProcessId> Spawn(const SpawnOptions& options);

// A zombie counts as gone.
bool IsAlive(const ProcessId& process);

// Sends the signal if the process is still that one.
void SendSignal(const ProcessId& process, int signal);

// Waits until none of them is alive; false if `limit` passes first.
bool AwaitEnd(const std::vector<ProcessId>& processes, absl::Duration limit);

// Kills what is left of the session that Spawn began with `leader`, which must have ended: children
// that outlived it. True: there was something.
bool KillSession(const ProcessId& leader);

// "exit code 1", "signal 9 (Killed)" for a child of this process that has ended; empty otherwise.
std::string HowItEnded(const ProcessId& child);

}  // namespace capstan::cli

#endif  // CAPSTAN_SCHEDULER_CLI_PROCESS_H_
