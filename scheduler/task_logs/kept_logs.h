// KeptLogs: stores the ends of tasks' logs on the scheduler's disk, so that users can read them
// after the task's worker is gone. TaskLogsService uses it.
//
// Each log is a sequence of a few files, so that its oldest part can be removed without a copy of
// the rest:
//
//   <folder>/<job id>/<rank>-<incarnation>-<first byte>     about kSegmentBytes each
//
// At least the last `task_bytes` of each rank are kept, over all its incarnations. If all logs
// together have more than `bytes_max`, the logs of the least recently written job are removed.
// Thread safety: thread-compatible.
#ifndef CAPSTAN_SCHEDULER_TASK_LOGS_KEPT_LOGS_H_
#define CAPSTAN_SCHEDULER_TASK_LOGS_KEPT_LOGS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/types/ids.h"

namespace capstan::scheduler {

// Returns the kNotFound of KeptLogs::Read.
absl::Status NoKeptLog(const JobId& job, Rank rank);

class KeptLogs {
 public:
  static constexpr int64_t kSegmentBytes = 256 << 10;
  struct Options {
    std::string folder;                     // Only this class uses it.
    int64_t task_bytes = int64_t{1} << 20;  // > 0.
    int64_t bytes_max = int64_t{1} << 30;   // >= 0. Limit for all logs together.
  };
  struct Part {
    std::string data;
    int64_t next_offset = 0;  // Offset in the log behind `data`.
    Incarnation incarnation;  // Incarnation of the task that wrote the log.
  };

  explicit KeptLogs(Options options);

  // Loads the list of stored logs, and removes those of jobs for which `is_known` returns false. It
  // must be the first call.
  // Errors: kUnavailable  the folder cannot be made.
  absl::Status Open(const std::function<bool(const JobId&)>& is_known);

  // Appends `data`, which begins at `offset` of the log of that incarnation. Bytes that are stored
  // already are skipped; a gap before `data` stays a gap. Returns the end offset of the stored log.
  // REQUIRES: the job's id is one plain name; rank, offset >= 0; incarnation > 0.
  // Errors: kResourceExhausted  no space, or this job alone would exceed bytes_max.
  //         kUnavailable        another error of the disk.
  absl::StatusOr<int64_t> Keep(const JobId& job, Rank rank, Incarnation incarnation, int64_t offset,
                               const std::string& data);

  // Reads at most `bytes_max` bytes from `offset` on, or from the next stored byte. A negative
  // `offset` counts from the end. `incarnation` 0 means the newest stored one.
  // Errors: kNotFound  no byte of the log is stored.   kUnavailable  an error of the disk.
  absl::StatusOr<Part> Read(const JobId& job, Rank rank, Incarnation incarnation, int64_t offset,
                            int64_t bytes_max) const;

  void Remove(const JobId& job);  // No effect if the job has no stored logs.

  int64_t bytes() const { return bytes_; }

 private:
  // Rank, incarnation, offset of the first byte. The keys' order is the order of writing.
  using SegmentKey = std::tuple<Rank, Incarnation, int64_t>;
  struct Job {
    std::map<SegmentKey, int64_t> segments;  // The size of each segment in bytes.
    uint64_t written = 0;                    // The value of `writes_` at the last write.
  };

  std::string PathOf(const JobId& job, const SegmentKey& segment) const;
  void RemoveFirst(const JobId& id, Job& job, Rank rank);
  void TrimRank(const JobId& id, Job& job, Rank rank);
  absl::Status MakeRoom(const JobId& writer, int64_t bytes);
  // Returns the last segment of that incarnation's log; end() if there is none.
  static std::map<SegmentKey, int64_t>::const_iterator LastOf(const Job& job, Rank rank,
                                                              Incarnation incarnation);

  const Options options_;
  std::map<JobId, Job> jobs_;
  int64_t bytes_ = 0;
  uint64_t writes_ = 0;
};

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_TASK_LOGS_KEPT_LOGS_H_
