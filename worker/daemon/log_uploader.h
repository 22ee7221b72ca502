// LogUploader: hands the ends of this daemon's task logs on to the scheduler, which keeps them for
// the time when this host is gone.
//
//   Watch --> WATCHED --every `interval`: what is new goes out, 256 KiB at a time--> WATCHED
//                \--the task has ended and all is sent, or its job is unknown--> forgotten
//
// A log that is more than `behind_max` ahead of what the scheduler has is sent from its end on.
// While the scheduler is away nothing is sent; what it missed comes later, up to that bound.
// Thread safety: thread-safe, except that Start and Stop are one thread's. `read` and `keep` are
// called by one thread, under no lock of this class.
#ifndef CAPSTAN_WORKER_DAEMON_LOG_UPLOADER_H_
#define CAPSTAN_WORKER_DAEMON_LOG_UPLOADER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/container/btree_map.h"
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
  static constexpr size_t kTasksMax = 1000;  // Watched at a time; the lowest in order are dropped.

  struct Options {
    // As ReadTaskLog of worker_service.h.
    std::function<absl::StatusOr<v1::ReadTaskLogResponse>(const v1::ReadTaskLogRequest&)> read;
    // TaskLogs.KeepTaskLog, with a deadline; where to go on.
    std::function<absl::StatusOr<int64_t>(const v1::KeepTaskLogRequest&)> keep;
    absl::Duration interval = absl::Seconds(1);  // > 0.
    int64_t behind_max = int64_t{1} << 20;       // > 0.
  };

  explicit LogUploader(Options options);
  ~LogUploader();  // Stops.

  void Start();
  // Sends what is new once more, unless the scheduler does not answer. Idempotent.
  void Stop();
  void Watch(const TaskName& task);  // Also before its log is there.
  size_t watched() const;

 private:
  enum class Outcome { kWatchOn, kLater, kForget, kSchedulerAway };
  static constexpr int64_t kUnknown = -1;

  void Run();
  bool Round();  // False: the scheduler does not answer.
  Outcome Upload(const TaskName& task, int64_t* next) const;
  Outcome Send(const TaskName& task, const std::string& data, int64_t* next) const;
  absl::StatusOr<v1::ReadTaskLogResponse> Read(const TaskName& task, int64_t offset,
                                               int32_t bytes_max) const;

  const Options options_;
  mutable absl::Mutex mutex_;
  // With where to go on in each; kUnknown: the scheduler is to be asked.
  absl::btree_map<TaskName, int64_t> tasks_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_DAEMON_LOG_UPLOADER_H_
