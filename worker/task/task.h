// Task: the compute loop of one worker task and what it shares with its scheduler link.
//
// Two threads: the loop (pull, compute, push) and the link (report, receive). They share the board
// under one mutex. The loop waits for servers in PushPullClient::Wait, which a new assignment
// interrupts, so that a task that waits for a dead worker's slot can be told to compute that slot
// itself.
// Thread safety: Run is called once; the class has no other public method.
#ifndef CAPSTAN_WORKER_TASK_TASK_H_
#define CAPSTAN_WORKER_TASK_TASK_H_

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/btree_map.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "common/time/clock.h"
#include "proto/scheduler.pb.h"
#include "worker/client/push_pull_client.h"
#include "worker/core/task_board.h"
#include "worker/task/scheduler_link.h"
#include "worker/training/trainer.h"

namespace capstan::worker {

class Task {
 public:
  Task(const v1::TaskAssignment& assignment, const std::string& scheduler, const Clock& clock);

  // Works until the scheduler says FINISH, the task is fenced off, or something fails.
  // Returns the process's exit code (run_task.h).
  int Run();

 private:
  // A push that is not yet acknowledged.
  struct Outstanding {
    OpId op;
    Work work;
    WorkResult result;
  };

  std::optional<v1::Failure> Loop();
  std::optional<v1::Failure> Prepare();
  std::optional<v1::Failure> TrainOne(const Work& work);
  std::optional<v1::Failure> EvaluateOne(const Work& work);
  std::optional<v1::Failure> Export(const Work& work);

  // Waits for something to do; kFinish also when fenced off.
  Work NextWork();
  // Parameters as of `iteration`. *ready is false if the plan may have changed meanwhile:
  // ask NextWork again.
  absl::Status EnsureParameters(Iteration iteration, bool* ready);
  absl::Status EnsureSnapshot(Epoch epoch, Phase phase);
  absl::Status PullAhead();
  std::vector<MicroBatch> BatchesAhead();
  // Waits until at most `left` pushes are outstanding.
  absl::Status AwaitPushes(size_t left);
  absl::Status AwaitUninterrupted(OpId op, OpResult* result);
  // Writes `work` down as done; reports it at once if there is little left to do.
  void DoneLocked(const Work& work, const WorkResult& result) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Fenced();
  bool PlanIsOld();  // A newer assignment has come since NextWork.
  std::shared_ptr<TableArrays> FreeGradient();

  v1::SyncTaskRequest Report();
  void Receive(const v1::SyncTaskResponse& response);

  // Constant after construction.
  const v1::TaskAssignment assignment_;
  const Clock& clock_;

  // Used by the loop alone.
  std::unique_ptr<Trainer> trainer_;
  std::vector<v1::TableSpec> specs_;
  TableArrays parameters_;
  std::vector<std::shared_ptr<TableArrays>> gradients_;  // A pool; free when nobody else holds one.
  std::deque<Outstanding> outstanding_;
  Generation planned_;                       // Of the assignment that the current work is of.
  std::optional<Iteration> held_iteration_;  // What parameters_ hold, if it is one iteration's.
  std::optional<std::pair<OpId, Iteration>> pull_;  // Started ahead.
  std::optional<std::pair<Phase, Epoch>> held_snapshot_;
  absl::btree_map<TableId, Version> held_versions_;  // Of the snapshot.

  // Self-synchronized.
  PushPullClient client_;

  absl::Mutex mutex_;
  TaskBoard board_ ABSL_GUARDED_BY(mutex_);
  bool fenced_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<v1::Failure> failure_ ABSL_GUARDED_BY(mutex_);

  SchedulerLink link_;  // Declared last: its thread dies first.
};

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_TASK_TASK_H_
