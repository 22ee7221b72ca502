// TaskTable: the tasks that a worker daemon should run, runs, or must still report as ended.
//
// Pure: no clock, threads, files or logging. Input: desired states and ends; output: actions.
// Thread safety: thread-compatible; TaskSupervisor serializes all calls.
//
//   desired           ends
//   -------> RUNNING --------------------------> ENDED (reported until no longer desired) --> gone
//               \ no longer desired: terminate                                              ^
//                -> STOPPING --------------------------------------------------------------/  ends
//   A new incarnation of the daemon kills and forgets every process; their ends are not reported.
//
// Invariants: (1) a task is started at most once while it is in the table;
//             (2) every started process is in running_ until ProcessEnded names it.
#ifndef CAPSTAN_WORKER_DAEMON_TASK_TABLE_H_
#define CAPSTAN_WORKER_DAEMON_TASK_TABLE_H_

#include <compare>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "common/types/ids.h"

namespace capstan::worker {

// One incarnation of a task, as the scheduler names it.
struct TaskName {
  JobId job;
  Rank rank;
  Incarnation incarnation;
  friend auto operator<=>(const TaskName&, const TaskName&) = default;
};

// Identifies one start of a process by this daemon; counted from 1 and never reused.
using ProcessId = StrongInt<struct ProcessIdTag, uint64_t>;

struct TaskEnd {
  int exit_code = 0;       // Valid if signal is 0.
  int signal = 0;          // The signal that ended it; 0: none.
  std::string last_lines;  // The last lines of its log, if it failed.
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
  std::vector<ProcessId> terminate;  // Processes to terminate with grace.
  std::vector<ProcessId> kill;       // Processes to kill at once.
  bool report = false;               // The node's state has changed: report it now.
};

class TaskTable {
 public:
  // Accepts the whole list of tasks that this daemon must run.
  void TakeDesired(const std::vector<TaskName>& desired, TaskActions* actions);
  // A process ended, or could not be started. An unknown one is ignored.
  void ProcessEnded(ProcessId process, TaskEnd end, TaskActions* actions);
  // A new incarnation of the daemon: kills all processes, forgets all tasks.
  void NewIncarnation(TaskActions* actions);
  // The daemon stops: terminates all processes and starts no more. Ends are still reported.
  void StopAll(TaskActions* actions);

  // Every task that runs, or that has ended and is still desired; ordered by name.
  std::vector<TaskReport> Report() const;
  // True while the task's process runs.
  bool IsRunning(const TaskName& task) const;
  bool stopping() const { return stopping_; }  // StopAll was called.
  // The number of running processes, forgotten ones included.
  int running_count() const { return static_cast<int>(running_.size()); }

 private:
  struct Entry {
    ProcessId process;
    bool desired = true;
    bool exited = false;
    TaskEnd end;
  };

  std::map<TaskName, Entry> tasks_;
  std::set<ProcessId> running_;
  ProcessId last_process_;
  bool stopping_ = false;
};

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_DAEMON_TASK_TABLE_H_
