// TaskBoard: the state of a worker task's assignment: what it does next, and what it has done.
//
// The compute loop asks Next(), calls Start() before any part of that work is sent, and Done() when
// the servers have acknowledged it. The scheduler link passes assignments to Take() and makes its
// reports from the getters. Pure. Thread safety: thread-compatible; the task's loop and its
// scheduler link share it under one mutex.
//
//   assignment: IDLE <-> TRAIN <-> EVALUATE -> EXPORT -> FINISH
//                        TRAIN <-> TRAIN paused
//   (the scheduler decides; the newest wins)
//
// While it is paused the task starts nothing more; it is idle when what was started has been
// acknowledged. An assignment with the same leases continues exactly where the last one stopped.
// Invariant: the task is idle only when every batch that it started has been acknowledged, also
// batches of leases that it has no longer. While it is paused, a batch that is the run of a program
// at its own pace may go on, as long as none of the run's operations does (SetResting).
#ifndef CAPSTAN_WORKER_CORE_TASK_BOARD_H_
#define CAPSTAN_WORKER_CORE_TASK_BOARD_H_

#include <cstdint>
#include <string>
#include <vector>

#include "common/types/ids.h"
#include "worker/core/row_cache.h"
#include "worker/core/sample_planner.h"
#include "worker/core/slot_planner.h"

namespace capstan::worker {

enum class Phase { kIdle, kTrain, kEvaluate, kExport, kFinish };

struct Assignment {
  Generation generation;
  Phase phase = Phase::kIdle;
  Epoch epoch;
  std::vector<SlotLease> slots;      // Train under BSP.
  std::vector<SampleLease> samples;  // Train under SSP and ASP; evaluate.
  Iteration start_iteration;         // SSP, ASP.
  Iteration epoch_first_iteration;   // BSP.
  std::string export_path;           // Export.
  std::string staged_path;           // Export: the model is there already; only move it.
  bool paused = false;               // Train: start nothing more, but keep the leases.
};

// One unit of work: a micro-batch, an evaluation batch, or the export.
struct Work {
  enum class Kind { kNone, kTrain, kEvaluate, kExport, kFinish };
  Kind kind = Kind::kNone;
  Epoch epoch;
  Iteration iteration;           // Train: the iteration of its pull and of its push.
  Range slots;                   // Train under BSP: the slot as a range; else empty.
  Range positions;               // Samples; empty for a BSP slot beyond the data.
  int64_t gradient_samples = 1;  // Train: the gradient is divided by it.
  LeaseId lease;                 // SSP, ASP and evaluation.
  std::string export_path;       // Export.
  std::string staged_path;       // Export: the model is there already; only move it.
  friend bool operator==(const Work&, const Work&) = default;
};

struct TaskTotals {
  int64_t samples = 0;
  double loss = 0.0;
  int64_t correct = 0;
  // [k]: the pulls that saw staleness k; the last entry counts k or more.
  std::vector<int64_t> staleness_counts;
  // Models with a cache of rows: the rows that it gave for training, and those that were pulled.
  int64_t rows_cached = 0;
  int64_t rows_pulled = 0;
};

class TaskBoard {
 public:
  static constexpr int kStalenessEntriesMax = 64;

  struct Options {
    bool bsp = false;
    int slots = 1;           // BSP: micro-batches per iteration.
    int backups = 0;         // BSP: the number of slots that an update does not wait for.
    int64_t batch_size = 1;  // Training samples per micro-batch.
    int64_t evaluation_batch_size = 1;
    int64_t train_samples = 0;
  };
  explicit TaskBoard(const Options& options);

  // Sets the number of training samples, once the data is loaded.
  // REQUIRES: nothing has been started yet.
  void SetTrainSamples(int64_t count) { options_.train_samples = count; }

  // Replaces the assignment if `assignment` is newer; returns whether it was.
  bool Take(const Assignment& assignment);

  // The work to start next; kNone if there is none, also while paused.
  Work Next() const;
  // The next `count` batches to train or evaluate, in order, to decode ahead; also while paused.
  std::vector<Work> Upcoming(int count) const;
  // Begins `work`. Returns false, and begins nothing, if `work` is not Next() any more: a later
  // assignment has paused the task or taken the work away, and the scheduler may have been told
  // that the task is idle.
  [[nodiscard]] bool Start(const Work& work);
  void Done(const Work& work, const WorkResult& result);

  // BSP: other tasks have completed the iterations before `oldest`.
  void SkipTo(Iteration oldest);
  // Counts a training pull in totals().
  void SawRead(const RowsRead& read);
  void Exported() { exported_ = true; }
  // The run that was begun has no operation under way, and begins none until the next assignment.
  // REQUIRES: paused.
  void SetResting() { resting_ = true; }
  // The run that was begun has been taken away, and has no operation under way.
  void GiveUp(const Work& work);

  // True if all assigned work is done or none may be started, and all started work is acknowledged.
  bool Idle() const;

  const Assignment& assignment() const { return assignment_; }
  const TaskTotals& totals() const { return totals_; }
  bool exported() const { return exported_; }
  // SSP, ASP: every iteration of this task below it is acknowledged.
  Iteration iterations_done() const { return iterations_done_; }
  std::vector<SlotProgress> slot_progress() const { return slots_.Progress(); }
  std::vector<SampleProgress> sample_progress() const { return samples().Progress(); }
  int unfinished_leases() const { return samples().UnfinishedLeases(); }
  // The task should ask for more samples at once. The slots of BSP last an epoch.
  bool WantsLeases() const { return !TrainsSlots() && unfinished_leases() < kLeasesHeld; }

 private:
  static constexpr int kLeasesHeld = 2;  // A task that has fewer to finish asks for more.

  bool TrainsSlots() const { return options_.bsp && assignment_.phase == Phase::kTrain; }
  const SamplePlanner& samples() const {
    return assignment_.phase == Phase::kEvaluate ? evaluation_ : training_;
  }
  SamplePlanner& samples() {
    return assignment_.phase == Phase::kEvaluate ? evaluation_ : training_;
  }
  Work FromSlot(const SlotWork& slot) const;
  Work FromSamples(const SampleWork& batch, Iteration iteration) const;

  Options options_;  // Constant once training has started.
  Assignment assignment_;
  SlotPlanner slots_;
  SamplePlanner training_;
  SamplePlanner evaluation_;
  Iteration next_iteration_;
  Iteration iterations_done_;
  TaskTotals totals_;
  int64_t under_way_ = 0;  // Training batches that are started and not yet done.
  bool resting_ = false;   // See SetResting.
  bool exported_ = false;
};

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_CORE_TASK_BOARD_H_
