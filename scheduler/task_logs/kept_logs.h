// KeptLogs: the ends of tasks' logs on the scheduler's disk, for when their worker is gone.
//
// Each log is a few files in a row, so that the oldest part can go without a copy of the rest:
//
//   <folder>/<job id>/<rank>-<incarnation>-<first byte>     about kSegmentBytes each
//
// Of each rank at least the last `task_bytes` are kept, through all its lives; when all logs
// together have more than `bytes_max`, those of the job that was written longest ago go.
// Thread safety: thread-compatible.
#ifndef CAPSTAN_SCHEDULER_TASK_LOGS_KEPT_LOGS_H_
#define CAPSTAN_SCHEDULER_TASK_LOGS_KEPT_LOGS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <tuple>
#include <utility>

#include "absl/container/btree_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/types/ids.h"

namespace capstan::scheduler {

class KeptLogs {
 public:
  static constexpr int64_t kSegmentBytes = 256 << 10;
  struct Options {
    std::string folder;                     // Of this class alone.
    int64_t task_bytes = int64_t{1} << 20;  // > 0.
    int64_t bytes_max = int64_t{1} << 30;   // >= 0. Of all logs.
  };
  struct Part {
    std::string data;
    int64_t next_offset = 0;  // In the log, behind `data`.
    Incarnation incarnation;  // Of the life whose log it is.
  };

  explicit KeptLogs(Options options);

  // Reads what there is; before any other call. Logs of jobs that `is_known` does not know go.
  // Errors: the disk's, of the folder.
  absl::Status Open(const std::function<bool(const JobId&)>& is_known);

  // Adds `data`, which begins at `offset` of that life's log. What is there already is passed over;
  // what is missed before it is left out. The end of what is kept. REQUIRES: the job's id is one
  // plain name; rank, offset >= 0; incarnation > 0.
  // Errors: kResourceExhausted  no space, or this job alone has bytes_max.   kUnavailable  the
  //         disk's.
  absl::StatusOr<int64_t> Keep(const JobId& job, Rank rank, Incarnation incarnation, int64_t offset,
                               const std::string& data);

  // At most `bytes_max` from `offset` on; what is not kept before it is passed over. `offset` below
  // 0: that many bytes before the end. `incarnation` 0: the newest that is kept.
  // Errors: kNotFound  nothing is kept of it.   kUnavailable  the disk's.
  absl::StatusOr<Part> Read(const JobId& job, Rank rank, Incarnation incarnation, int64_t offset,
                            int64_t bytes_max) const;

  void Remove(const JobId& job);  // No effect if nothing is kept of it.

  int64_t bytes() const { return bytes_; }

 private:
  // Rank, life, first byte; in the order in which a rank's log was written.
  using SegmentKey = std::tuple<Rank, Incarnation, int64_t>;
  struct Job {
    absl::btree_map<SegmentKey, int64_t> segments;  // With their bytes.
    uint64_t written = 0;                           // When last, as a number that grows.
  };

  std::string PathOf(const JobId& job, const SegmentKey& segment) const;
  void RemoveFirst(const JobId& id, Job& job, Rank rank);
  void TrimRank(const JobId& id, Job& job, Rank rank);
  absl::Status MakeRoom(const JobId& writer, int64_t bytes);
  // The last segment of that life; end(): there is none.
  static absl::btree_map<SegmentKey, int64_t>::const_iterator LastOf(const Job& job, Rank rank,
                                                                     Incarnation incarnation);

  const Options options_;
  absl::btree_map<JobId, Job> jobs_;
  int64_t bytes_ = 0;
  uint64_t writes_ = 0;
};

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_TASK_LOGS_KEPT_LOGS_H_
