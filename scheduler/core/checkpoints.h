// Checkpoints: when a job takes its next checkpoint, and how far the present one has come.
//
//   IDLE --Begin, at a quiet moment--> CAPTURING --all servers captured--> WRITING --all parts
//   written--> PUBLISHING --Published: the manifest is on the disk--> IDLE, complete
//      any --a server failed, died, took too long, or lost a shard's primacy--> IDLE, abandoned
//
// Snapshots. Readers may ask for a moment that is kept for them on the servers. It is captured in
// the same way, and is told (TakeTaken) when all servers have; if no checkpoint is due, that was
// all: CAPTURING --> IDLE. Ids of checkpoints and snapshots are of one sequence: what was asked for
// is the next moment that is begun, which may be both.
//
// The job stands still only while CAPTURING. A new one is not begun before the last has ended.
//
// Chains. Of sparse tables servers may write what changed since the newest complete one, the base;
// then the new one rests on that and on all that it rests on. A chain ends, and the next one has
// all of everything, when it has kChainMax checkpoints, when the increments together are more than
// half of its first one, and when something is wrong with it. Of a job the newest `keep` complete
// ones stay, with all that they rest on; those of one chain count as one, so that damage to a file
// leaves another one to go back to.
// Thread safety: thread-compatible.
// Invariants: (1) ids grow, from above those that the job's folder held before it, so that nothing
//                 is written over, also what the job itself began with.
//             (2) at most one is under way.
//             (3) a complete one has one part of each shard, all of the same moment.
#ifndef CAPSTAN_SCHEDULER_CORE_CHECKPOINTS_H_
#define CAPSTAN_SCHEDULER_CORE_CHECKPOINTS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/time/instant.h"
#include "common/types/ids.h"
#include "scheduler/core/events.h"
#include "scheduler/core/job_plan.h"
#include "scheduler/core/messages.h"
#include "scheduler/core/placement.h"
#include "scheduler/core/resume_point.h"

namespace capstan::scheduler {

// The manifest of a checkpoint whose parts are all written. The shell makes it durable, and reports
// the result by SchedulerCore::CheckpointPublished. It may come again after a restart.
struct CheckpointPublish {
  JobId job;
  CheckpointId id;
  std::string folder;                 // The folder of this checkpoint.
  std::string job_folder;             // The folder of all checkpoints of the job.
  CheckpointId base;                  // The checkpoint that parts may rest on; 0: none.
  std::vector<CheckpointPart> parts;  // By shard.
  std::vector<ServerRef> writers;     // The server that has written each part.
  ResumePoint at;
};

// The checkpoints that the shell may remove from a job's folder, when it is durable that a newer
// one is complete: all that are older than the newest of `staying` and not named here.
struct CheckpointRemoval {
  std::string job_folder;
  CheckpointId floor;                 // Checkpoints up to this id are not the job's.
  std::vector<CheckpointId> staying;  // Includes all that they rest on. Empty: remove nothing.
  // Ranges from a first to a last id: a job that has not ended can go back to the last.
  std::vector<std::pair<CheckpointId, CheckpointId>> pinned = {};
};

class Checkpoints {
 public:
  // A limit for the servers to capture, and another one to write.
  static constexpr absl::Duration kCaptureLimit = absl::Seconds(60);
  static constexpr absl::Duration kWriteLimit = absl::Minutes(30);
  static constexpr int kChainMax = 8;  // Checkpoints that a restore may have to read.
  static constexpr size_t kReadersMax = 1024;

  explicit Checkpoints(const JobPlan& plan);

  // ---- when
  void SkipTo(CheckpointId floor);              // Ids up to there are given out already.
  void StartClock(int64_t steps, Instant now);  // Training begins: what is counted starts here.
  void Ask();                                   // For one as soon as the job can be quiet.
  // A reader wants a snapshot, likewise. Asking twice is asking once.
  // Errors: kResourceExhausted  kReadersMax others want the same one.
  absl::Status AskSnapshot(uint64_t reader);
  // The job is to become quiet for the next one. `steps`: iterations (BSP), batches done.
  bool IsDue(int64_t steps, Instant now) const;
  int64_t DueSteps() const { return due_steps_; }  // By count; the largest number if never.
  Instant DueAt() const { return due_at_; }        // By time; InfiniteFuture if never.

  // ---- the present one
  // REQUIRES: IsIdle(). The job is quiet at `steps`, and stays so until IsCapturing() is false.
  void Begin(const Routing& routing, ResumePoint at, int64_t steps, Instant now);
  void OnReport(const NodeId& server, const CheckpointReport& report, Instant now);
  void OnRouting(const Routing& routing);  // The newest one.
  void OnServerDied(const NodeId& server);
  // `node`: whose part there is not. No effect if idle.
  void Abandon(const std::string& why, const NodeId& node = {});
  void Published(CheckpointId id, const absl::Status& status);
  void Tick(Instant now);
  Instant Limit() const;  // When Tick gives up what servers capture or write.

  bool IsIdle() const { return state_ == State::kIdle; }
  bool IsCapturing() const { return state_ == State::kCapturing; }
  CheckpointOrder order() const;  // For the servers; of id 0: none.
  bool MustPublish() const { return state_ == State::kPublishing; }
  CheckpointPublish ToPublish() const;             // REQUIRES: MustPublish().
  std::optional<CheckpointPublish> TakePublish();  // Given once in each life of the scheduler.
  CheckpointRemoval Removal() const;               // Leaves out what other jobs have pinned.
  CheckpointId last_begun() const { return last_begun_; }
  NodeId Awaited() const;  // A server that it waits for.

  // ---- ends
  // Both: what has ended since the last call, in order.
  std::vector<CheckpointEnded> TakeEnded();
  std::vector<SnapshotTaken> TakeTaken();
  // The one of that id, or the newest after it, if it is complete. Null: it may come.
  // Errors: kFailedPrecondition  it was given up, or nobody has asked for it.
  absl::StatusOr<const RestoreFrom*> Find(CheckpointId asked) const;
  // Complete ones that stay, oldest first.
  const std::vector<RestoreFrom>& complete() const { return complete_; }
  void Forget(CheckpointId id);  // A complete one that cannot be read.
  // The newest complete one stays, with all that it rests on, until another is kept.
  void KeepNewest();
  const RestoreFrom* kept() const;  // Null: none.

  // ---- durable state, in the form of scheduler/store/archive.h
  uint64_t changes() const { return changes_; }  // Grows with whatever must be durable.
  template <typename Archive>
  void serialize(Archive& archive) {
    archive(state_, asked_, due_steps_, due_at_, last_begun_, deadline_, routing_, progress_,
            parts_, at_, complete_, base_, chain_, readers_asked_, readers_, writes_, not_kept_,
            last_failed_, why_failed_, kept_best_);
  }
  void Restored(Instant now);

 private:
  enum class State { kIdle, kCapturing, kWriting, kPublishing };

  enum class Progress { kNone, kCaptured, kWritten };

  // The chain of the newest complete one. Length 0: the next one has all of everything.
  struct Chain {
    int length = 0;
    int64_t first_bytes = 0;
    int64_t added_bytes = 0;  // The bytes of all increments together.
    template <typename Archive>
    void serialize(Archive& archive) {
      archive(length, first_bytes, added_bytes);
    }
  };

  bool IsWriteDue(int64_t steps, Instant now) const;
  void AllCaptured(Instant now);
  void TellSnapshot(const std::string& why);
  bool AllAtLeast(Progress progress) const;
  CheckpointId NextBase() const;
  CheckpointId RestsOn() const;  // The present one, all of whose parts are written.
  std::vector<CheckpointId> StayingWith(CheckpointId present, CheckpointId rests_on) const;
  void AddToChain();
  std::string TakeParts(const NodeId& server, const std::vector<CheckpointPart>& parts);
  std::string FolderOf(CheckpointId id) const;
  void End(const std::string& why, const NodeId& node = {});

  const JobId job_;
  const bool bsp_;
  const int64_t every_steps_;
  const absl::Duration every_;
  const int kept_;
  const bool incremental_;
  const std::string folder_;
  const CheckpointId floor_;

  State state_ = State::kIdle;
  bool asked_ = false;
  int64_t due_steps_;
  Instant due_at_ = Instant::InfiniteFuture();
  CheckpointId last_begun_;
  Instant deadline_;                            // When capturing or writing is given up.
  Routing routing_;                             // When it began.
  absl::btree_map<NodeId, Progress> progress_;  // The progress of each primary.
  absl::btree_map<ShardKey, CheckpointPart> parts_;
  ResumePoint at_;
  std::vector<RestoreFrom> complete_;
  CheckpointId kept_best_;
  CheckpointId base_;  // The base of the present checkpoint; 0: none.
  Chain chain_;
  std::vector<uint64_t> readers_asked_;  // For the next one.
  std::vector<uint64_t> readers_;        // The readers of the present snapshot.
  bool writes_ = true;                   // The present one is a checkpoint, too.
  std::string not_kept_;                 // Why no reader can read the present one.
  CheckpointId last_failed_;
  std::string why_failed_;
  std::vector<CheckpointEnded> ended_;
  std::vector<SnapshotTaken> taken_;
  bool publish_taken_ = false;  // In this life of the scheduler.
  uint64_t changes_ = 0;
};

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_CORE_CHECKPOINTS_H_
