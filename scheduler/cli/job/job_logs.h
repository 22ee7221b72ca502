// JobLogs: prints the new lines in the logs of a job's tasks each time that Read() is called.
//
// A task's log is read from its worker or, if the worker cannot be asked, from the part that the
// scheduler keeps. A task that is started again has a new log, which follows the old one.
// `capstan job logs` and the commands that follow a job use it.
// Thread safety: main thread only.
#ifndef CAPSTAN_SCHEDULER_CLI_JOB_JOB_LOGS_H_
#define CAPSTAN_SCHEDULER_CLI_JOB_JOB_LOGS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/scheduler.pb.h"
#include "scheduler/cli/client/client.h"

namespace capstan::cli {

// Cuts a text that arrives in parts into lines.
class LineCutter {
 public:
  static constexpr size_t kLineBytesMax = 1 << 20;  // Longer lines are cut.

  // `line` gets each line without its end.
  explicit LineCutter(std::function<void(const std::string& line)> line) : line_(std::move(line)) {}

  void Add(const std::string& data);
  void Finish();  // Treats the text after the last end of a line as a line, too.

 private:
  const std::function<void(const std::string& line)> line_;
  std::string pending_;
};

class JobLogs {
 public:
  static constexpr int kAllRanks = -1;

  struct Options {
    int rank = kAllRanks;  // Only this task.
    // kOfSeveral: lines begin with "[rank N] " if the job has several tasks.
    enum class Prefix { kOfSeveral, kAlways } prefix = Prefix::kOfSeveral;
    std::function<void(const std::string& line)> print;  // Gets each line without its end.
    std::function<void(const std::string& line)> say;    // Gets reasons why logs cannot be read.
  };

  // `scheduler` outlives this object.
  JobLogs(SchedulerClient& scheduler, std::string job, Options options);
  ~JobLogs();

  // Prints what is new in the logs of the tasks that `job` names. Each reason why a log cannot be
  // read is reported once; the other logs are read. Returns false if there is no such task.
  bool Read(const v1::JobStatus& job);
  // Same as Read(), for a job that has ended. Tasks may still write the reason of their end, so the
  // function reads until their processes have ended, at most for `limit`. Then it calls Finish().
  void ReadToEnd(const v1::JobStatus& job, absl::Duration limit = absl::Seconds(5));
  void Finish();                           // Prints lines that have no end yet.
  bool failed() const { return failed_; }  // A log could not be read.

 private:
  class TaskLog;

  SchedulerClient& scheduler_;
  const std::string job_;
  const Options options_;
  std::map<int, std::unique_ptr<TaskLog>> logs_;  // By rank, as below.
  std::map<int, std::string> told_;  // The last reported reason why a log cannot be read.
  bool failed_ = false;
};

}  // namespace capstan::cli

#endif  // CAPSTAN_SCHEDULER_CLI_JOB_JOB_LOGS_H_
