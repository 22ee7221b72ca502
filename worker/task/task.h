// Task: one worker task process: what TaskLoop (worker/core) decides, done with threads and gRPC.
//
// Two threads: the loop (pull, compute, push) and the link (report, receive). They share the board
// under one mutex. Every call of the port blocks the loop's thread, so that its coroutines are
// never suspended. The loop waits for servers in PushPullClient::Wait, which a new assignment
// interrupts, so that a task that waits for a dead worker's slot can be told to compute that slot
// itself.
// Thread safety: Run is called once; the class has no other public method.
#ifndef CAPSTAN_WORKER_TASK_TASK_H_
#define CAPSTAN_WORKER_TASK_TASK_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/btree_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/job_files/scheduler_disk.h"
#include "common/tensor/model_file.h"
#include "common/time/clock.h"
#include "proto/scheduler.pb.h"
#include "worker/client/call_history.h"
#include "worker/client/push_pull_client.h"
#include "worker/core/task_board.h"
#include "worker/core/task_loop.h"
#include "worker/task/computation.h"
#include "worker/task/failures.h"
#include "worker/task/scheduler_link.h"
#include "worker/task/task_activity.h"
#include "worker/task/task_trace.h"

namespace capstan::worker {

class Task final : private TaskPort {
 public:
  // `folder` has the task's own files.
  Task(const v1::TaskAssignment& assignment, const std::string& scheduler,
       const std::string& folder, const Clock& clock);

  // Works until the scheduler says FINISH, the task is fenced off, or something fails.
  // Returns the process's exit code (run_task.h).
  int Run();

 private:
  absl::Status Loop();  // All but the last word. OK: finished or fenced off.
  absl::Status Prepare();
  // Takes note of where the computation failed, if it did.
  void NoteComputed(const absl::Status& status);

  // TaskPort, on the loop's thread.
  void UseBoard(const std::function<void(TaskBoard&)>& use) override;
  bool Fenced() override;
  void ReportSoon() override;
  bool HasRouting() override;
  absl::StatusOr<OpId> Push(const Work& work) override;
  absl::StatusOr<OpId> Pull(const Work& work, bool snapshot) override;
  void CancelPull(OpId op) override;
  RowsRead Pulled(const OpDone& done) override;
  bool Wait(OpId op, OpDone* done) override;
  bool Forward(const Work& work, std::optional<OpId> pull, OpDone* done) override;
  bool WaitForWork() override;
  bool Train(const Work& work, OpId push, absl::StatusOr<WorkResult>* result) override;
  bool Evaluate(const Work& work, absl::StatusOr<WorkResult>* result) override;
  bool Export(const Work& work, const absl::btree_map<TableId, Version>& versions,
              absl::Status* result) override;

  std::vector<Work> Upcoming();
  // Of the pull: parameters below `end` (PushPullClient::WaitFor).
  bool WaitForParameters(OpId pull, int64_t end);
  std::shared_ptr<GradientArrays> FreeGradient();
  absl::Status WriteModel(const std::string& folder,
                          const absl::btree_map<TableId, Version>& versions);
  absl::Status StageModel(const Work& work, const absl::btree_map<TableId, Version>& versions);
  absl::Status MoveModel(const Work& work);
  absl::StatusOr<TableRows> WriteRows(const std::string& folder, const v1::TableSpec& table);
  absl::StatusOr<v1::RoutingTable> NewestRouting();

  // The link's callbacks, on its thread.
  v1::SyncTaskRequest Report();
  void Receive(const v1::SyncTaskResponse& response);

  // Constant after construction.
  const v1::TaskAssignment assignment_;
  const std::string folder_;
  const Clock& clock_;

  // Used by the loop alone.
  FailedAt failed_at_ = FailedAt::kAnything;
  std::unique_ptr<Computation> computation_;
  TableArrays parameters_;
  // A pool; one is free when nobody else holds it.
  std::vector<std::shared_ptr<GradientArrays>> gradients_;
  std::shared_ptr<GradientArrays> gradient_;  // Train computes it for the next push.

  // Self-synchronized.
  const std::unique_ptr<TaskTrace> trace_;      // Null: none is asked for.
  const std::unique_ptr<CallHistory> history_;  // Likewise.
  TaskActivity activity_;
  PushPullClient client_;
  SchedulerDisk scheduler_disk_;

  absl::Mutex mutex_;
  TaskBoard board_ ABSL_GUARDED_BY(mutex_);
  bool prepared_ ABSL_GUARDED_BY(mutex_) = false;
  bool fenced_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<v1::Failure> failure_ ABSL_GUARDED_BY(mutex_);
  v1::RoutingTable routing_ ABSL_GUARDED_BY(mutex_);  // The scheduler's last.
  v1::StoreRevision revision_seen_ ABSL_GUARDED_BY(mutex_);

  SchedulerLink link_;  // Declared last: its thread dies first.
};

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_TASK_TASK_H_
