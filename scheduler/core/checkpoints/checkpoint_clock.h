// CheckpointClock: when a job takes its next checkpoint or snapshot.
//
//   NOT DUE --so many steps, or so much time, since the last one; Ask--> a checkpoint is due
//           --AskSnapshot--> a snapshot is due
//   due --Checkpoints::Begin: TakeReaders, and of a checkpoint Begun--> NOT DUE
//
// Owned by Checkpoints, which begins none before the present one has ended.
// Pure: no clock; the time comes in. Thread safety: thread-compatible.
#ifndef CAPSTAN_SCHEDULER_CORE_CHECKPOINTS_CHECKPOINT_CLOCK_H_
#define CAPSTAN_SCHEDULER_CORE_CHECKPOINTS_CHECKPOINT_CLOCK_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/time/instant.h"
#include "common/types/ids.h"
#include "scheduler/core/plan/job_plan.h"

namespace capstan::scheduler {

class CheckpointClock {
 public:
  static constexpr size_t kReadersMax = 1024;

  explicit CheckpointClock(const JobPlan& plan);

  // Training begins: steps and time count from here.
  void Start(int64_t steps, Instant now);
  void Ask();  // Asks for a checkpoint as soon as the job can be quiet.
  // Asks for a snapshot for a reader, as soon as the job can be quiet. A reader that asks twice
  // counts once.
  // Errors: kResourceExhausted  kReadersMax others wait for the same snapshot.
  absl::Status AskSnapshot(uint64_t reader);

  // `steps`: the iterations (BSP) or batches done.
  bool IsCheckpointDue(int64_t steps, Instant now) const;
  bool IsSnapshotDue() const { return !readers_.empty(); }
  bool asked() const { return asked_; }
  // When one is due by count; the largest number: never.
  int64_t DueSteps() const { return due_steps_; }
  Instant DueAt() const { return due_at_; }  // When one is due by time; InfiniteFuture: never.

  void Begun(int64_t steps, Instant now);  // A checkpoint has begun.
  std::vector<uint64_t> TakeReaders();     // The readers of the snapshot that begins.

  // ---- durable state, in the form of scheduler/store/archive.h
  uint64_t changes() const { return changes_; }  // Grows with whatever must be durable.
  template <typename Archive>
  void serialize(Archive& archive) {
    archive(asked_, due_steps_, due_at_, readers_);
  }

 private:
  const JobId job_;
  const int64_t every_steps_;
  const absl::Duration every_;
  bool asked_ = false;
  int64_t due_steps_;
  Instant due_at_ = Instant::InfiniteFuture();
  std::vector<uint64_t> readers_;  // They want the next snapshot.
  uint64_t changes_ = 0;
};

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_CORE_CHECKPOINTS_CHECKPOINT_CLOCK_H_
