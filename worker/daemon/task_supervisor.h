// TaskSupervisor: runs the tasks that the scheduler wants on this daemon, each in a child process.
//
// It is the shell around TaskTable: it writes a task's spec, starts `capstan-worker --task` on it
// with a log file beside it, stops tasks that are no longer wanted, and reports how they ended.
//
// Thread safety: thread-safe. on_change is called under no lock.
#ifndef CAPSTAN_WORKER_DAEMON_TASK_SUPERVISOR_H_
#define CAPSTAN_WORKER_DAEMON_TASK_SUPERVISOR_H_

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/devices/devices.h"
#include "common/net/node/node_registration.h"
#include "common/process/subprocess/process_supervisor.h"
#include "worker/daemon/program_uids.h"
#include "worker/daemon/program_users.h"
#include "worker/daemon/task_files.h"
#include "worker/daemon/task_table.h"

namespace capstan::worker {

class TaskSupervisor final : public NodeHandler {
 public:
  struct Options {
    std::string work_dir;             // Absolute.
    std::string scheduler;            // host:port, passed to the tasks.
    std::string tls_dir;              // Passed to the tasks. Empty: plain text.
    std::string log_format = "text";  // Passed to the tasks.
    // Rules of AllowedPaths, passed to the tasks.
    std::vector<std::string> allow_path;
    bool run_programs = false;  // Runs the programs of users' jobs (JobSpec.program).
    // Each job's programs run as one of these users. No value: as this process's user.
    std::optional<UidRange> program_uids;
    // The program that runs a task: this one, even if its file has been replaced since.
    std::string program = "/proc/self/exe";
    int ended_tasks_kept = 20;                     // Ended tasks whose files stay on the disk.
    absl::Duration stop_grace = absl::Seconds(2);  // From SIGTERM to SIGKILL.
    Devices devices;                               // This host's; sent at each registration.
    std::function<void()> on_change;               // Called if the state changed: NodeAgent::Wake.
    // Called when a task is about to write its log. May be null.
    std::function<void(const TaskName&)> on_start;
  };

  explicit TaskSupervisor(Options options);
  ~TaskSupervisor() override;  // Kills all tasks.

  // Errors: those of ProgramUsers::Start, and of ProcessSupervisor::Start.
  absl::Status Start();
  // Terminates all tasks and waits for their ends, which the state still reports; starts no more.
  // Returns the number of tasks that are still running five seconds after SIGKILL: normally 0.
  int StopTasks();
  // True while that task's process runs.
  bool IsRunning(const TaskName& task) const;

  void FillRegistration(v1::RegisterRequest& request) override;
  void Restarted(const NodeId& node_id, Incarnation incarnation) override;
  void FillState(v1::SyncNodeRequest& request) override;
  void TakeDesired(const v1::SyncNodeResponse& response) override;

 private:
  struct Process {
    TaskName task;
    TaskFiles files;
    bool has_user = false;  // Its user is one of program_users_.
  };

  // Carries out the table's actions. `assignments` has those of actions.start.
  void Perform(const TaskActions& actions,
               const std::map<TaskName, const v1::TaskAssignment*>& assignments);
  // The options for the process of a task that trains a model.
  SpawnOptions ModelTask(const TaskFiles& files) const;
  // The options for the process of a job's program. Its user, if it has one, is given back at its
  // end.
  // Errors: kFailedPrecondition  this worker runs none. Those of ProgramUsers::TaskStarts.
  absl::StatusOr<SpawnOptions> ProgramOf(const TaskName& task, const v1::TaskAssignment& assignment,
                                         const TaskFiles& files);
  absl::Status StartTask(ProcessId process, const TaskName& task,
                         const v1::TaskAssignment& assignment);
  void OnProcessEnd(ProcessId process, const absl::StatusOr<ExitStatus>& end);
  void Ended(ProcessId process, TaskEnd end);
  void DeleteOldFiles() const;

  const Options options_;
  std::unique_ptr<ProgramUsers> program_users_;  // Constant after Start. Null: none.

  mutable absl::Mutex mutex_;
  TaskTable table_ ABSL_GUARDED_BY(mutex_);
  std::map<ProcessId, Process> processes_ ABSL_GUARDED_BY(mutex_);  // Running processes.

  ProcessSupervisor supervisor_;  // Declared last: its thread ends first.
};

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_DAEMON_TASK_SUPERVISOR_H_
