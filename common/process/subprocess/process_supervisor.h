// ProcessSupervisor: starts child processes and reports when each one has ended.
//
// One thread spawns all of them, so that they live at most as long as it does, and polls their
// pidfds.
//
//   Spawn -> RUNNING --------------------------------> on_end
//               \ Terminate: SIGTERM -> TERMINATING --> on_end
//                                          \ grace over: SIGKILL
//
// Thread safety: thread-safe. on_end is called by the supervisor's thread, one call at a time,
// under no lock; it may call Spawn and Terminate.
#ifndef CAPSTAN_COMMON_PROCESS_SUBPROCESS_PROCESS_SUPERVISOR_H_
#define CAPSTAN_COMMON_PROCESS_SUBPROCESS_PROCESS_SUPERVISOR_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/process/subprocess/subprocess.h"

namespace capstan {

class ProcessSupervisor {
 public:
  // Called exactly once for every Spawn: how the process ended, or why it could not be started.
  using OnEnd = std::function<void(uint64_t id, const absl::StatusOr<ExitStatus>& end)>;

  explicit ProcessSupervisor(OnEnd on_end);
  ~ProcessSupervisor();  // Stop without grace.

  // Errors: kUnavailable  the system gives no eventfd.
  absl::Status Start();
  // Starts a process. REQUIRES: the id is new; Stop has not been called.
  void Spawn(uint64_t id, SpawnOptions options);
  // SIGTERM, then after `grace` SIGKILL; without grace SIGKILL at once. An id that has ended is
  // ignored.
  void Terminate(uint64_t id, absl::Duration grace);
  // Terminates all, reports their ends, and ends the thread. Idempotent.
  void Stop(absl::Duration grace);

 private:
  struct Command {
    enum class Kind { kSpawn, kTerminate } kind = Kind::kSpawn;
    uint64_t id = 0;
    SpawnOptions options;
    absl::Duration grace;
  };
  struct Child {
    std::unique_ptr<Subprocess> process;
    absl::Time kill_at = absl::InfiniteFuture();
  };

  void Run();
  // Executes the commands that were posted; true once Stop was called.
  bool TakeCommands();
  void DoSpawn(const Command& command);
  void DoTerminate(Child& child, absl::Duration grace);
  // `now` is the same for a whole turn: a child is either killed in it or its deadline is waited
  // for.
  void KillOverdue(absl::Time now);
  void CollectEnded();
  // Waits for a command, the end of a child, or the end of a grace.
  void WaitForEvent(absl::Time now);
  void Post(Command command);
  void Ring();

  // Constant after Start.
  const OnEnd on_end_;
  int bell_ = -1;  // An eventfd that ends the poll.

  // Only the supervisor's thread uses it.
  std::map<uint64_t, Child> children_;

  absl::Mutex mutex_;
  std::vector<Command> commands_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Duration stop_grace_ ABSL_GUARDED_BY(mutex_);

  std::thread thread_;
};

}  // namespace capstan

#endif  // CAPSTAN_COMMON_PROCESS_SUBPROCESS_PROCESS_SUPERVISOR_H_
