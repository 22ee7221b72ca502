// TaskBoard: what a worker task has been assigned, what it does next, and what it has done.
//
// The compute loop asks Next(), begins it with Start() before anything of it leaves and says Done()
// when the servers have acknowledged it; the scheduler's assignments come in through Take(); the
// report goes out of the getters. Pure. Thread safety: thread-compatible; the task's loop and its
// scheduler link share it under one mutex.
//
//   assignment: IDLE <-> TRAIN <-> EVALUATE -> EXPORT -> FINISH
//                        TRAIN <-> TRAIN paused
//   (the scheduler decides; the newest wins)
//
// Paused, nothing more is started; what was started is acknowledged, and then the task is idle. An
// assignment that goes on with the same leases goes on exactly where it was.
// Invariant: idle only when every batch started has been acknowledged, also of leases that are not
// the task's any more.
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
  std::string staged_path;           // Export: the model is there; it is only to be moved.
  bool paused = false;               // Train: start nothing more; the leases stay.
};

// One unit of work: a micro-batch, an evaluation batch, or the export.
struct Work {
  enum class Kind { kNone, kTrain, kEvaluate, kExport, kFinish };
  Kind kind = Kind::kNone;
  Epoch epoch;
  Iteration iteration;           // Train: to pull at and to push as.
  Range slots;                   // Train under BSP: the slot as a range; else empty.
  Range positions;               // Samples; empty for a BSP slot beyond the data.
  int64_t gradient_samples = 1;  // Train: the gradient is divided by it.
  LeaseId lease;                 // SSP, ASP and evaluation.
  std::string export_path;       // Export.
  std::string staged_path;       // Export: the model is there; it is only to be moved.
  friend bool operator==(const Work&, const Work&) = default;
};

struct TaskTotals {
  int64_t samples = 0;
  double loss = 0.0;
  int64_t correct = 0;
  // [k] pulls that saw staleness k; the last entry: or more.
  std::vector<int64_t> staleness_counts;
  // Of models with a cache of rows: those that it gave for training, and those that were pulled.
  int64_t rows_cached = 0;
  int64_t rows_pulled = 0;
};

class TaskBoard {
 public:
  static constexpr int kStalenessEntriesMax = 64;

  struct Options {
    bool bsp = false;
    int slots = 1;           // BSP: micro-batches an iteration.
    int64_t batch_size = 1;  // Training samples a micro-batch.
    int64_t evaluation_batch_size = 1;
    int64_t train_samples = 0;
  };
  explicit TaskBoard(const Options& options);

  // The number of training samples, once the data is loaded.
  // REQUIRES: nothing has been started yet.
  void SetTrainSamples(int64_t count) { options_.train_samples = count; }

  // Replaces the assignment if it is newer. Returns whether it was.
  bool Take(const Assignment& assignment);

  // kNone while paused.
  Work Next() const;
  // The next `count` batches to train or evaluate, in order, for decoding ahead; also while paused.
  std::vector<Work> Upcoming(int count) const;
  // False, and nothing is begun, if `work` is not Next() any more: an assignment since has paused
  // the task or taken the work away, and the scheduler may have been told that the task is idle.
  [[nodiscard]] bool Start(const Work& work);
  void Done(const Work& work, const WorkResult& result);

  // BSP: iterations before `oldest` were completed by somebody else.
  void SkipTo(Iteration oldest);
  void SawRead(const RowsRead& read);
  void Exported() { exported_ = true; }

  // Everything assigned is done, or nothing may be started; and everything started is acknowledged.
  bool Idle() const;

  const Assignment& assignment() const { return assignment_; }
  const TaskTotals& totals() const { return totals_; }
  bool exported() const { return exported_; }
  // SSP, ASP: every own iteration below it is acknowledged.
  Iteration iterations_done() const { return iterations_done_; }
  std::vector<SlotProgress> slot_progress() const { return slots_.Progress(); }
  std::vector<SampleProgress> sample_progress() const { return samples().Progress(); }
  int unfinished_leases() const { return samples().UnfinishedLeases(); }

 private:
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
  int64_t under_way_ = 0;  // Training batches started and not yet done.
  bool exported_ = false;
};

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_CORE_TASK_BOARD_H_
