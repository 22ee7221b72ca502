// Checkpoints: the checkpoints of a job, and how far the present one has come. CheckpointClock says
// when the next one is due, CompleteCheckpoints has those that are complete.
//
//   IDLE --Begin, at a quiet moment--> CAPTURING --all servers captured--> WRITING --all parts
//   written--> PUBLISHING --Published: the manifest is on the disk--> IDLE, complete
//      any --a server failed, died, took too long, or lost a shard's primacy--> IDLE, abandoned
//
// Snapshots. Readers may ask for a moment that is kept for them on the servers. It is captured in
// the same way, and is reported (TakeEnds) when all servers have captured it; if no checkpoint is
// due, it ends there: CAPTURING --> IDLE. Checkpoints and snapshots share one sequence of ids: a
// request is for the next moment that is begun, which may be both.
//
// The job stands still only while CAPTURING. A new checkpoint or snapshot is not begun before the
// last one has ended.
// Owned by JobCheckpoints. Thread safety: thread-compatible.
// Invariants: (1) ids grow, and begin above those that the job's folder held before, so that no
//                 checkpoint is overwritten, not even the one that the job began with.
//             (2) at most one checkpoint or snapshot is under way.
//             (3) a complete one has one part of each shard, all of the same moment.
#ifndef CAPSTAN_SCHEDULER_CORE_CHECKPOINTS_CHECKPOINTS_H_
#define CAPSTAN_SCHEDULER_CORE_CHECKPOINTS_CHECKPOINTS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/time/instant.h"
#include "common/types/ids.h"
#include "scheduler/core/checkpoints/checkpoint_clock.h"
#include "scheduler/core/checkpoints/complete_checkpoints.h"
#include "scheduler/core/messages/events.h"
#include "scheduler/core/messages/loaded_check.h"
#include "scheduler/core/messages/messages.h"
#include "scheduler/core/messages/placement.h"
#include "scheduler/core/plan/job_plan.h"
#include "scheduler/core/plan/resume_point.h"

namespace capstan::scheduler {

// The manifest of a checkpoint whose parts are all written. The shell makes it durable, and reports
// the result by SchedulerCore::CheckpointPublished. It may come again after a restart.
struct CheckpointPublish {
  JobId job;
  CheckpointId id;
  std::string folder;                 // The folder of this checkpoint.
  std::string job_folder;             // The folder of all checkpoints of the job.
  CheckpointId base;                  // The checkpoint that parts may rest on; 0: none.
  std::vector<CheckpointPart> parts;  // Ordered by shard.
  std::vector<ServerRef> writers;     // The server that has written each part.
  ResumePoint at;
};

class Checkpoints {
 public:
  enum class State { kIdle, kCapturing, kWriting, kPublishing };  // The store has these numbers.

  explicit Checkpoints(const JobPlan& plan);

  CheckpointClock& clock() { return clock_; }
  const CheckpointClock& clock() const { return clock_; }
  CompleteCheckpoints& complete() { return complete_; }
  const CompleteCheckpoints& complete() const { return complete_; }

  // A checkpoint or snapshot is due, for which the job must become quiet. `steps`: the iterations
  // (BSP) or batches done.
  bool IsDue(int64_t steps, Instant now) const;

  // ---- the present one
  // REQUIRES: it is kIdle. The job is quiet at `steps`, and stays so while it is kCapturing.
  void Begin(const Routing& routing, ResumePoint at, int64_t steps, Instant now);
  void OnReport(const NodeId& server, const CheckpointReport& report, Instant now);
  void OnRouting(const Routing& routing);  // The newest table.
  void OnServerDied(const NodeId& server);
  // `node`: the server whose part is missing. No effect if idle.
  void Abandon(const std::string& why, const NodeId& node = {});
  void Published(CheckpointId id, const absl::Status& status);
  void Tick(Instant now);
  Instant Limit() const;  // When Tick abandons the present one.

  State state() const { return state_; }
  CheckpointOrder order() const;  // The order to the servers; id 0: none.
  NodeId Awaited() const;         // A server that it waits for, or "nobody".
  // Its manifest, which is to be written. Given once in each incarnation of the scheduler.
  std::optional<CheckpointPublish> TakePublish();
  CheckpointId last_begun() const { return last_begun_; }
  void SkipTo(CheckpointId floor);  // Ids up to there are taken. No effect if not idle.

  // ---- ends
  struct Ends {
    std::vector<CheckpointEnded> checkpoints;
    std::vector<SnapshotTaken> snapshots;
  };
  Ends TakeEnds();  // Returns the ends since the last call, in order.
  // Returns the newest complete checkpoint, if its id is at least `asked`. Null: it may still come.
  // Errors: kFailedPrecondition  it was given up, or nobody has asked for it.
  absl::StatusOr<const RestoreFrom*> Find(CheckpointId asked) const;

  // ---- durable state, in the form of scheduler/store/archive.h
  // Grows with whatever must be durable.
  uint64_t changes() const { return changes_ + clock_.changes() + complete_.changes(); }
  template <typename Archive>
  void serialize(Archive& archive) {
    archive(state_, clock_, last_begun_, deadline_, routing_, progress_, parts_, at_, complete_,
            base_, readers_, writes_, not_kept_, last_failed_, why_failed_);
  }
  void Restored(Instant now);

 private:
  friend class JobCheckpoints;  // It knows the plan, with which it checks what was loaded.

  enum class Progress { kNone, kCaptured, kWritten };
  friend constexpr Progress LastOf(Progress) { return Progress::kWritten; }

  // Errors: kDataLoss  a job with this plan and so many shards cannot have such checkpoints.
  absl::Status Check(const JobPlan& plan, size_t shards) const;
  bool IsCapturing() const { return state_ == State::kCapturing; }
  // Whether it waits for servers.
  bool IsAwaited() const { return IsCapturing() || state_ == State::kWriting; }
  void AllCaptured(Instant now);
  void TellSnapshot(const std::string& why);
  bool AllAtLeast(Progress progress) const;
  void Complete();  // The present one.
  std::string TakeParts(const NodeId& server, const std::vector<CheckpointPart>& parts);
  std::string FolderOf(CheckpointId id) const;
  void End(const std::string& why, const NodeId& node = {});

  const JobId job_;
  const bool bsp_;
  const std::string folder_;

  State state_ = State::kIdle;
  CheckpointClock clock_;
  CompleteCheckpoints complete_;
  CheckpointId last_begun_;
  Instant deadline_;                     // When capturing or writing is given up.
  Routing routing_;                      // The table when it began.
  std::map<NodeId, Progress> progress_;  // The progress of each primary.
  std::map<ShardKey, CheckpointPart> parts_;
  ResumePoint at_;
  CheckpointId base_;              // The base of the present checkpoint; 0: none, or a snapshot.
  std::vector<uint64_t> readers_;  // The readers of the present snapshot.
  bool writes_ = true;             // The present one is a checkpoint, too.
  std::string not_kept_;           // Why no reader can read the present one.
  CheckpointId last_failed_;
  std::string why_failed_;
  Ends ends_;
  bool publish_taken_ = false;  // TakePublish has given it in this incarnation.
  uint64_t changes_ = 0;
};

constexpr Checkpoints::State LastOf(Checkpoints::State) { return Checkpoints::State::kPublishing; }

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_CORE_CHECKPOINTS_CHECKPOINTS_H_
