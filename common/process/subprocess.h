// Subprocess: one child process in its own process group, whose output goes to a file.
//
// The child gets SIGKILL when the THREAD that spawned it ends, however it ends (also by a crash of
// the whole process): spawn from a thread that lives as long as the child may (ProcessSupervisor
// does). It starts with no signal blocked, standard input from /dev/null and no other inherited
// file.
//
// Thread safety: thread-compatible.
#ifndef CAPSTAN_COMMON_PROCESS_SUBPROCESS_H_
#define CAPSTAN_COMMON_PROCESS_SUBPROCESS_H_

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace capstan {

struct SpawnOptions {
  std::string program;            // Path; PATH is not searched.
  std::string name;               // args[0], as process listings show it; empty: `program`.
  std::vector<std::string> args;  // From args[1].
  std::vector<std::pair<std::string, std::string>> environment;  // Added to this process's; wins.
  std::string output_file;  // Standard output and error are appended to it; made if missing.
};

// How a process ended: by `signal`, or if that is 0 with `code`.
struct ExitStatus {
  int code = 0;
  int signal = 0;
  friend bool operator==(const ExitStatus&, const ExitStatus&) = default;
};

class Subprocess {
 public:
  // Errors: kNotFound     the program, or the folder of the output file, does not exist; names it.
  //         kUnavailable  it cannot be run, the file cannot be opened, or no process is to be had;
  //                       names which and why.
  static absl::StatusOr<std::unique_ptr<Subprocess>> Spawn(const SpawnOptions& options);
  // Kills the whole group and waits for the child.
  ~Subprocess();
  Subprocess(const Subprocess&) = delete;
  Subprocess& operator=(const Subprocess&) = delete;

  pid_t pid() const { return pid_; }
  // For poll: readable once the child has ended.
  int pidfd() const { return pidfd_; }

  // Sends `signal` to the whole group; nothing happens once the child has been waited for.
  void Signal(int signal);
  // Waits up to `timeout` for the end. What is left of the group is then killed. Nothing: it
  // still runs.
  std::optional<ExitStatus> Wait(absl::Duration timeout);
  // SIGTERM, up to `grace`, then SIGKILL.
  ExitStatus Terminate(absl::Duration grace);

 private:
  Subprocess(pid_t pid, int pidfd) : pid_(pid), pidfd_(pidfd) {}

  const pid_t pid_;
  const int pidfd_;
  std::optional<ExitStatus> ended_;
};

}  // namespace capstan

#endif  // CAPSTAN_COMMON_PROCESS_SUBPROCESS_H_
