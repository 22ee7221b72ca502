// TaskLoop: decides what a worker task does next: pull, compute, push, wait, evaluate, export.
//
// It is a coroutine that makes the decisions of the task's compute loop; a TaskPort does the work.
// A port that blocks its thread in every call (worker/task) never suspends the loop; a port that
// answers later (the simulator) suspends it and resumes it by virtual time. Destroying a suspended
// TaskLoop kills the task.
//
//              board has nothing: await outstanding pushes, then WaitForWork
//             .--------.
//             v        |
//   .-----> Plan ------'
//   |         | train: Forward, as the parameters of its iteration arrive -> Push (held)
//   |         |        -> pull ahead -> Train -> pushes
//   |         | train at own pace: RunProgram, which pushes and pulls by itself
//   |         | evaluate, export: every push acknowledged -> snapshot -> Evaluate / Export
//   '---------'
//             | finish, fenced off, or something failed
//             v
//           ended
//
// Overlap: push and pull are started before there is a gradient. Its parts are sent while the
// backward pass runs, and the next parameters overwrite those that it does not need any more. The
// next forward pass begins when its first parameters have arrived. Early pulls do not wait for the
// push: they are answered while the gradient is computed.
//
// Pure: no threads, sockets, clock or logging. Thread safety: thread-compatible.
// Invariants: (1) at most one pull at a time writes the parameters;
//             (2) every push that was started is awaited and marked as done on the board, in order;
//             (3) if acknowledgements wait for whole iterations, a new assignment interrupts every
//                 wait for a push: the missing slot may become this task's own.
#ifndef CAPSTAN_WORKER_CORE_TASK_LOOP_H_
#define CAPSTAN_WORKER_CORE_TASK_LOOP_H_

#include <coroutine>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/types/ids.h"
#include "worker/core/coroutine.h"
#include "worker/core/push_pull_session.h"
#include "worker/core/row_cache.h"
#include "worker/core/task_board.h"

namespace capstan::worker {

// The interface through which the loop uses the process around it.
class TaskPort {
 public:
  virtual ~TaskPort() = default;

  // ---- The state that the loop shares with the link to the scheduler.

  // Runs `use` on the board, under its lock if it has one.
  virtual void UseBoard(const std::function<void(TaskBoard&)>& use) = 0;
  virtual bool Fenced() = 0;      // Another process has this rank: the task must end.
  virtual void ReportSoon() = 0;  // There is progress that the scheduler should know at once.

  // ---- The servers, as in PushPullSession.

  virtual bool HasRouting() = 0;
  // Starts a held push of the gradient that Train will compute for `work`, in a buffer of its own.
  // The parameters that were pulled for `work` stay until it was trained.
  virtual absl::StatusOr<OpId> Push(const Work& work) = 0;
  // Starts a pull into the task's only set of parameters: for `work`'s iteration, or a snapshot. It
  // pulls those rows of sparse tables that the samples of `work` need (Options::keyed).
  virtual absl::StatusOr<OpId> Pull(const Work& work, bool snapshot) = 0;
  virtual void CancelPull(OpId op) = 0;
  // A pull for training has succeeded; returns what was read.
  virtual RowsRead Pulled(const OpDone& done) { return {.staleness = done.staleness}; }

  // ---- Calls that take time.
  //
  // A call that returns true has ended and has written its result. A call that returns false has
  // not: the port then gets the loop's handle through Suspended() and resumes it once, when the
  // result is written. At most one call is under way. Results live until the loop is resumed or
  // destroyed.

  // Waits until the operation has ended, and writes its OpDone. Ends with the status kCancelled if
  // a new assignment has come or the task was fenced off since the last kCancelled; the operation
  // goes on then.
  virtual bool Wait(OpId op, OpDone* done) = 0;
  // Waits as Wait does for `pull`, which brings the parameters of `work`; the port may compute with
  // those that have arrived meanwhile. The loop calls it before Push and Train of `work`; without
  // `pull` if the parameters are there already, and again for the same work after a new plan. Train
  // reports errors of the computation.
  virtual bool Forward(const Work& work, std::optional<OpId> pull, OpDone* done) {
    static_cast<void>(work);
    return !pull.has_value() || Wait(*pull, done);
  }
  // Waits until HasWork(board, has_routing), or until the task is fenced off.
  virtual bool WaitForWork() = 0;
  // Computes the gradient of `work` for `push`, and releases all of it on the way. REQUIRES: the
  // last Forward was for `work`.
  virtual bool Train(const Work& work, OpId push, absl::StatusOr<WorkResult>* result) = 0;
  // Options::own_pace: runs the program until it has finished and each of its operations has ended.
  // Ends with kCancelled if the work was taken away, or the task was fenced off.
  virtual bool RunProgram(const Work& work, absl::StatusOr<WorkResult>* result) {
    static_cast<void>(work);
    *result = absl::UnimplementedError("this task has no program at its own pace");
    return true;
  }
  virtual bool Evaluate(const Work& work, absl::StatusOr<WorkResult>* result) = 0;
  // Writes the pulled tables, which have these versions, as the exported model.
  virtual bool Export(const Work& work, const std::map<TableId, Version>& versions,
                      absl::Status* result) = 0;

  // Called only if a call has returned false.
  virtual void Suspended(std::coroutine_handle<> loop) { static_cast<void>(loop); }
};

class TaskLoop {
 public:
  struct Options {
    Acknowledgement acknowledgement = Acknowledgement::kEachPush;
    // Parameters are rows that a batch names: each batch has its own pull, in evaluation too.
    bool keyed = false;
    // See PushPullSession::Options. After Forward and Push of a work, the port allows the next pull
    // to overwrite the parameters that were pulled for it.
    bool early_pulls = false;
    // A work of training is the run of a program, which pushes and pulls at its own pace.
    bool own_pace = false;
  };
  TaskLoop(const Options& options, TaskPort& port);  // `port` outlives the loop.
  TaskLoop(const TaskLoop&) = delete;
  TaskLoop& operator=(const TaskLoop&) = delete;

  // Runs to the end, or, if the port suspends, to the first wait. REQUIRES: called once.
  void Start();

  bool ended() const { return running_.ended(); }
  // OK: the scheduler said FINISH, or the task was fenced off. Otherwise the reason why the task
  // gives up. REQUIRES: ended().
  const absl::Status& outcome() const { return running_.result(); }

  // True if WaitForWork must end; ports use it.
  static bool HasWork(const TaskBoard& board, bool has_routing);

 private:
  // A push that is not yet known to be acknowledged.
  struct Outstanding {
    OpId op;
    Work work;
    WorkResult result;
  };

  // All of these end with kCancelled if the plan may be out of date; the loop then plans again.
  Coroutine<absl::Status> Run();
  Coroutine<absl::Status> Step(const Work& work);  // `work` lives as long as the coroutine.
  Coroutine<absl::Status> Rest();
  Coroutine<absl::Status> TrainOne(const Work& work);
  Coroutine<absl::Status> RunOne(const Work& work);
  Coroutine<absl::Status> EvaluateOne(const Work& work);
  Coroutine<absl::Status> Export(const Work& work);
  // Runs Forward with the parameters of `work`'s iteration, which it pulls if need be.
  Coroutine<absl::Status> ForwardOne(const Work& work);
  // Pulls a snapshot for `work` unless it is there already.
  Coroutine<absl::Status> EnsureSnapshot(const Work& work);
  // Waits until at most `left` pushes are outstanding.
  Coroutine<absl::Status> AwaitPushes(size_t left);
  // Waits until the oldest outstanding push is of `iteration` or later, or there is none.
  Coroutine<absl::Status> AwaitPushesBefore(Iteration iteration);
  Coroutine<absl::Status> AwaitOldestPush();
  // Waits for the operation's end, however often it is interrupted, unless the task is fenced off.
  Coroutine<absl::Status> AwaitUninterrupted(OpId op, OpDone* done);

  Work Plan();                   // Returns the next work; kNone also if there is no routing table.
  bool Begin(const Work& work);  // False if it is not the next work any more.
  bool PlanIsOld();              // True if a newer assignment has come since Plan.
  absl::Status PullAhead();
  absl::Status StartPull(const Work& work);
  // Accepts the end of the pull for `work`. Not OK: the work cannot go on.
  absl::Status TakePulled(const Work& work, const OpDone& pulled);
  void GivePullUp();
  // True if the parameters that were pulled for `a` are those that `b` needs.
  bool SameParameters(const Work& a, const Work& b) const;
  // `pushed`: OpDone::pushed_version.
  void WriteDown(const Work& work, const WorkResult& result, Version pushed);
  bool AwaitsIterations() const {
    return options_.acknowledgement == Acknowledgement::kWholeIteration;
  }

  const Options options_;  // Constant after construction.
  TaskPort& port_;
  std::deque<Outstanding> outstanding_;        // Ordered as they were started.
  Generation planned_;                         // The generation of the current work's assignment.
  std::optional<Work> held_;                   // The work whose training parameters are here.
  std::optional<std::pair<OpId, Work>> pull_;  // The pull under way, and the work that needs it.
  std::optional<Work> held_snapshot_;          // The work whose snapshot is here.
  std::map<TableId, Version> held_versions_;   // The versions of the snapshot's tables.
  Coroutine<absl::Status> running_;            // Declared last: it uses all of the others.
};

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_CORE_TASK_LOOP_H_
