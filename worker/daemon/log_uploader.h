// LogUploader: sends the ends of this daemon's task logs to the scheduler, which keeps them in case
// this host is lost.
//
//   Watch --> WATCHED --every `interval`: sends what is new, 256 KiB at a time--> WATCHED
//                \--the task has ended and all is sent, or its job is unknown--> forgotten
//
// If a log is more than `behind_max` bytes ahead of what the scheduler has, only its last
// `behind_max` bytes are sent. While the scheduler is unreachable nothing is sent; it gets what it
// missed later, up to that bound.
// Thread safety: thread-safe, except that one thread calls Start and Stop. One thread calls `read`
// and `keep`, under no lock of this class.
#ifndef CAPSTAN_WORKER_DAEMON_LOG_UPLOADER_H_
#define CAPSTAN_WORKER_DAEMON_LOG_UPLOADER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "proto/task_logs.pb.h"
#include "worker/daemon/task_table.h"

namespace capstan::worker {

class LogUploader {
 public:
  static constexpr int32_t kPieceBytesMax = 256 << 10;
  static constexpr size_t kTasksMax = 1000;  // If more are watched, the first by name is dropped.

  struct Options {
    // Same as ReadTaskLog in worker_service.h.
    std::function<absl::StatusOr<v1::ReadTaskLogResponse>(const v1::ReadTaskLogRequest&)> read;
    // Calls TaskLogs.KeepTaskLog, with a deadline; returns the offset to continue from.
    std::function<absl::StatusOr<int64_t>(const v1::KeepTaskLogRequest&)> keep;
    absl::Duration interval = absl::Seconds(1);  // > 0.
    int64_t behind_max = int64_t{1} << 20;       // > 0.
  };

  explicit LogUploader(Options options);
  ~LogUploader();  // Stops.

  void Start();
  // Sends what is new one last time, unless the scheduler does not answer. Idempotent.
  void Stop();
  void Watch(const TaskName& task);  // The log need not exist yet.
  size_t watched() const;

 private:
  enum class Outcome { kWatchOn, kLater, kForget, kSchedulerAway };
  static constexpr int64_t kUnknown = -1;

  void Run();
  bool Round();  // Returns false if the scheduler does not answer.
  Outcome Upload(const TaskName& task, int64_t* next) const;
  Outcome Send(const TaskName& task, const std::string& data, int64_t* next) const;
  absl::StatusOr<v1::ReadTaskLogResponse> Read(const TaskName& task, int64_t offset,
                                               int32_t bytes_max) const;

  const Options options_;
  mutable absl::Mutex mutex_;
  // The watched tasks, with the offset to continue from; kUnknown: ask the scheduler.
  std::map<TaskName, int64_t> tasks_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_DAEMON_LOG_UPLOADER_H_
