// JobHistory: a bounded list of what went wrong with a job and how it was repaired, for its owner.
//
// Equal events that follow each other are kept as one with a count, so that what fails again and
// again does not push out the rest. The oldest events are forgotten first.
// Thread safety: thread-compatible.
#ifndef CAPSTAN_SCHEDULER_CORE_JOB_JOB_HISTORY_H_
#define CAPSTAN_SCHEDULER_CORE_JOB_JOB_HISTORY_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/time/instant.h"
#include "common/types/ids.h"
#include "scheduler/core/messages/events.h"
#include "scheduler/core/messages/loaded_check.h"

namespace capstan::scheduler {

// The kinds and numbers are those of proto/scheduler.proto.
enum class JobEventKind {
  kServerLost = 1,
  kDiskFull,
  kFailover,
  kDegraded,
  kReplicated,
  kCheckpointFailed,
  kTaskDied,
  kTaskRestarted,
  kLinkDied,
  kWentBack,
  kModelKept,
  kServerJoined,
  kShardsMoved,
  kRecovered,
};
constexpr JobEventKind FirstOf(JobEventKind) { return JobEventKind::kServerLost; }
constexpr JobEventKind LastOf(JobEventKind) { return JobEventKind::kRecovered; }

struct JobEvent {
  JobEventKind kind = JobEventKind::kServerLost;
  NodeId node;       // Where it happened. Empty: no single node.
  std::string text;  // One sentence; at most JobHistory::kTextBytesMax.
  Instant first;     // When it happened for the first time.
  Instant last;      // When it happened for the last time.
  int64_t count = 1;
  template <typename Archive>
  void serialize(Archive& archive) {
    archive(kind, node, text, first, last, count);
    CheckLoaded(archive, [this] { return CheckCount("times of an event", count); });
  }
};

const JobId* JobOf(const Event& event);  // Null: it is not about a job.

// Returns the part of `event` that the owner of the job should know, without `first`, `last` and
// `count`. Empty for ordinary events.
std::vector<JobEvent> NotableIn(const Event& event);

class JobHistory {
 public:
  static constexpr size_t kEventsMax = 100;
  static constexpr size_t kTextBytesMax = 500;

  // Returns whether the event was kept. A kReplicated is kept only after a kDegraded.
  bool Add(JobEvent event, Instant now);

  const std::vector<JobEvent>& events() const { return events_; }  // Oldest first.
  int64_t forgotten() const { return forgotten_; }                 // How many older ones.

  template <typename Archive>
  void serialize(Archive& archive) {
    archive(events_, forgotten_, degraded_);
    CheckLoaded(archive, [this] { return CheckCount("forgotten events", forgotten_); });
  }

 private:
  std::vector<JobEvent> events_;
  int64_t forgotten_ = 0;
  bool degraded_ = false;  // The last event on replicas was a kDegraded.
};

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_CORE_JOB_JOB_HISTORY_H_
