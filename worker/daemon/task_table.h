// TaskTable: which tasks a worker daemon should run, runs, and has yet to report the end of.
//
// Pure: no clock, threads, files or logging. Desired states and ends come in, actions go out.
// Thread safety: thread-compatible; TaskSupervisor serializes all calls.
//
//   desired           ends
//   -------> RUNNING --------------------------> ENDED (reported until no longer desired) --> gone
//               \ no longer desired: terminate                                              ^
//                -> STOPPING --------------------------------------------------------------/  ends
//   A new life kills every process and forgets its task; the ends of those are nobody's business.
//
// Invariants: (1) a task is started at most once while it is in the table;
//             (2) every started process is in running_ until ProcessEnded names it.
#ifndef CAPSTAN_WORKER_DAEMON_TASK_TABLE_H_
#define CAPSTAN_WORKER_DAEMON_TASK_TABLE_H_

#include <compare>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "common/types/ids.h"

namespace capstan::worker {

// One life of a task, as the scheduler names it.
struct TaskName {
  JobId job;
  Rank rank;
  Incarnation incarnation;
  friend auto operator<=>(const TaskName&, const TaskName&) = default;
};

// One start of a process by this daemon, from 1 up; never used again.
using ProcessId = StrongInt<struct ProcessIdTag, uint64_t>;

struct TaskEnd {
  int exit_code = 0;       // Valid if signal is 0.
  int signal = 0;          // That ended it; 0: none.
  std::string last_lines;  // Of its log, if it ended badly.
  friend bool operator==(const TaskEnd&, const TaskEnd&) = default;
};

struct TaskReport {
  TaskName task;
  bool exited = false;
  TaskEnd end;  // Valid if exited.
};

struct TaskActions {
  struct Start {
    ProcessId process;
    TaskName task;
  };
  std::vector<Start> start;
  std::vector<ProcessId> terminate;  // With grace.
  std::vector<ProcessId> kill;       // At once.
  bool report = false;               // The node's state has changed: tell the scheduler now.
};

class TaskTable {
 public:
  // Takes in the whole list of tasks that this daemon is to run.
  void TakeDesired(const std::vector<TaskName>& desired, TaskActions* actions);
  // A process ended, or could not be started. An unknown one is ignored.
  void ProcessEnded(ProcessId process, TaskEnd end, TaskActions* actions);
  // A new life of the daemon: kills all processes, forgets all tasks.
  void NewLife(TaskActions* actions);
  // The daemon stops: terminates all processes and starts no more. Ends are still reported.
  void StopAll(TaskActions* actions);

  // Every task that runs, or whose end the scheduler has not yet dropped; by name.
  std::vector<TaskReport> Report() const;
  // True while the task's process runs.
  bool IsRunning(const TaskName& task) const;
  bool stopping() const { return stopping_; }  // StopAll was called.
  // Processes that run, forgotten ones included.
  int running_count() const { return static_cast<int>(running_.size()); }

 private:
  struct Entry {
    ProcessId process;
    bool desired = true;
    bool exited = false;
    TaskEnd end;
  };

  absl::btree_map<TaskName, Entry> tasks_;
  absl::btree_set<ProcessId> running_;
  ProcessId last_process_;
  bool stopping_ = false;
};

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_DAEMON_TASK_TABLE_H_
