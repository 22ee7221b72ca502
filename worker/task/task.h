// Task: one worker task process: carries out the decisions of TaskLoop (worker/core) with threads
// and gRPC.
//
// It has two threads: the loop (pull, compute, push) and the link (report, receive). They share the
// board under one mutex. Every call of the port blocks the loop's thread, so that its coroutines
// are never suspended. The loop waits for servers in PushPullClient::Wait, which a new assignment
// interrupts, so that the scheduler can tell a task that waits for a dead worker's slot to compute
// that slot itself.
// Thread safety: Run is called once; GiveUp and capability may be called by any thread meanwhile.
#ifndef CAPSTAN_WORKER_TASK_TASK_H_
#define CAPSTAN_WORKER_TASK_TASK_H_

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/job_files/scheduler_disk.h"
#include "common/net/grpc/credentials.h"
#include "common/tensor/model_file.h"
#include "common/time/clock.h"
#include "proto/scheduler.pb.h"
#include "worker/client/call_history.h"
#include "worker/client/push_pull_client.h"
#include "worker/core/task_board.h"
#include "worker/core/task_loop.h"
#include "worker/task/computation/computation.h"
#include "worker/task/computation/update_recorder.h"
#include "worker/task/current_capability.h"
#include "worker/task/failures.h"
#include "worker/task/reporting/scheduler_link.h"
#include "worker/task/table_operations.h"
#include "worker/task/task_activity.h"
#include "worker/task/task_trace.h"

namespace capstan::worker {

class Task final : private TaskPort {
 public:
  // `folder` has the task's own files. Null credentials: plain text. They outlive the task. `make`
  // is called once, by Run.
  Task(const v1::TaskAssignment& assignment, const std::string& scheduler,
       const Credentials* credentials, const std::string& folder, MakeComputation make,
       const Clock& clock);

  // Works until the scheduler says FINISH, the task is fenced off, or something fails.
  // Returns the process's exit code (run_task.h).
  int Run();
  // Ends Run, also while it waits for work or for a server. The task fails for this reason, unless
  // it is done.
  void GiveUp(const absl::Status& why);
  std::string capability() const { return capability_.Get(); }  // The newest; empty: none.

 private:
  absl::Status Loop();  // All except the last report. OK: finished or fenced off.
  absl::Status Prepare();
  // Records in failed_at_ that the computation failed on a GPU, if it did.
  void NoteComputed(const absl::Status& status);

  // The methods of TaskPort, called on the loop's thread.
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
  bool RunProgram(const Work& work, absl::StatusOr<WorkResult>* result) override;
  bool Evaluate(const Work& work, absl::StatusOr<WorkResult>* result) override;
  bool Export(const Work& work, const std::map<TableId, Version>& versions,
              absl::Status* result) override;

  // Keeps the operations of the run going until it has ended, or was taken away (kCancelled).
  absl::StatusOr<WorkResult> AttendRun(const Work& work);
  absl::Status DrainRun();  // Waits until no operation runs, unless the task is fenced off.
  enum class RunState { kGoesOn, kPaused, kTakenAway };
  RunState StateOfRun(const Work& work);
  void Rest();  // Reports that the paused run rests, if it does; waits for what changes that.
  std::vector<Work> Upcoming();
  // Waits for the pull's parameters below `end` (PushPullClient::WaitFor).
  bool WaitForParameters(OpId pull, int64_t end);
  std::shared_ptr<GradientArrays> FreeGradient();
  absl::Status WriteModel(const std::string& folder, const std::map<TableId, Version>& versions);
  absl::Status StageModel(const Work& work, const std::map<TableId, Version>& versions);
  absl::Status MoveModel(const Work& work);
  absl::StatusOr<TableRows> WriteRows(const std::string& folder, const v1::TableSpec& table);
  absl::StatusOr<v1::RoutingTable> NewestRouting();

  // The link's callbacks, called on its thread.
  v1::SyncTaskRequest Report();
  void Receive(const v1::SyncTaskResponse& response);

  // Constant after construction.
  const v1::TaskAssignment assignment_;
  const Credentials* const credentials_;
  const std::string folder_;
  const MakeComputation make_computation_;
  const Clock& clock_;

  // Used by the loop alone.
  FailedAt failed_at_ = FailedAt::kAnything;
  std::shared_ptr<Computation> computation_;
  std::shared_ptr<TableOperations> tables_;  // Shared with a program at its own pace; else null.
  TableArrays parameters_;
  // A pool; a gradient is free when neither gradient_ nor a push holds it.
  std::vector<std::shared_ptr<GradientArrays>> gradients_;
  std::shared_ptr<GradientArrays> gradient_;  // Train computes it for the next push.
  AllTableKeys gradient_keys_;                // The keys of its rows, if updates are recorded.

  // Self-synchronized.
  CurrentCapability capability_;
  const std::unique_ptr<TaskTrace> trace_;          // Null if the job asks for none.
  const std::unique_ptr<CallHistory> history_;      // Null if the environment asks for none.
  const std::unique_ptr<UpdateRecorder> recorder_;  // Null if the job does not record updates.
  TaskActivity activity_;
  PushPullClient client_;
  SchedulerDisk scheduler_disk_;

  absl::Mutex mutex_;
  TaskBoard board_ ABSL_GUARDED_BY(mutex_);
  bool prepared_ ABSL_GUARDED_BY(mutex_) = false;
  bool fenced_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status gave_up_ ABSL_GUARDED_BY(mutex_);
  std::optional<v1::Failure> failure_ ABSL_GUARDED_BY(mutex_);
  v1::RoutingTable routing_ ABSL_GUARDED_BY(mutex_);  // The last one from the scheduler.
  v1::StoreRevision revision_seen_ ABSL_GUARDED_BY(mutex_);

  SchedulerLink link_;  // Declared last: its thread dies first.
};

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_TASK_TASK_H_
