// Subprocess: one child process in its own process group, whose output goes to a file.
//
// The child gets SIGKILL when the THREAD that spawned it ends (spawn.h): spawn from a thread that
// lives as long as the child may (ProcessSupervisor does).
//
// Thread safety: thread-compatible.
#ifndef CAPSTAN_COMMON_PROCESS_SUBPROCESS_SUBPROCESS_H_
#define CAPSTAN_COMMON_PROCESS_SUBPROCESS_SUBPROCESS_H_

#include <sys/types.h>

#include <memory>
#include <optional>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/process/subprocess/spawn.h"
#include "common/storage/files/descriptor.h"

namespace capstan {

// How a process ended: by `signal`, or if that is 0 with `code`.
struct ExitStatus {
  int code = 0;
  int signal = 0;
  friend bool operator==(const ExitStatus&, const ExitStatus&) = default;
};

class Subprocess {
 public:
  // The child leads a process group, unless it is to lead a session. Errors: those of
  // capstan::Spawn.
  static absl::StatusOr<std::unique_ptr<Subprocess>> Spawn(SpawnOptions options);
  // Kills the whole group and waits for the child.
  ~Subprocess();
  Subprocess(const Subprocess&) = delete;
  Subprocess& operator=(const Subprocess&) = delete;

  pid_t pid() const { return pid_; }
  // A descriptor for poll: readable once the child has ended.
  int pidfd() const { return pidfd_.get(); }

  // Sends `signal` to the whole group; nothing happens once the child has been waited for.
  void Signal(int signal);
  // Waits up to `timeout` for the end, and then kills what is left of the group. None: it still
  // runs.
  std::optional<ExitStatus> Wait(absl::Duration timeout);
  // SIGTERM, up to `grace`, then SIGKILL.
  ExitStatus Terminate(absl::Duration grace);

 private:
  Subprocess(pid_t pid, Descriptor pidfd) : pid_(pid), pidfd_(std::move(pidfd)) {}

  const pid_t pid_;
  const Descriptor pidfd_;
  std::optional<ExitStatus> ended_;
};

}  // namespace capstan

#endif  // CAPSTAN_COMMON_PROCESS_SUBPROCESS_SUBPROCESS_H_
