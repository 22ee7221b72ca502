// TaskLoop: what one worker task does next: pull, compute, push, wait, evaluate, export.
//
// The decisions of the task's compute loop, as a coroutine over a TaskPort that does the work. A
// port that blocks its thread in every call (worker/task) never suspends the loop; a port that
// answers later (the simulator) suspends it and resumes it by virtual time. Destroying a suspended
// TaskLoop kills the task.
//
//              board has nothing: await outstanding pushes, then WaitForWork
//             .--------.
//             v        |
//   .-----> Plan ------'
//   |         | train: Forward, as the parameters of its iteration arrive -> Push (held)
//   |         |        -> pull ahead -> Train -> pushes
//   |         | evaluate, export: every push acknowledged -> snapshot -> Evaluate / Export
//   '---------'
//             | finish, fenced off, or something failed
//             v
//           ended
//
// Overlap: push and pull are started before there is a gradient. Its parts leave while the backward
// pass goes on, and the next parameters take the place of those that it has done with. The next
// forward pass begins once its first parameters are there. Early pulls do not wait for the push:
// they are answered while the gradient is computed.
//
// Pure: no threads, sockets, clock or logging. Thread safety: thread-compatible.
// Invariants: (1) the parameters are written by at most one pull at a time;
//             (2) every push that was started is awaited and marked as done on the board, in order;
//             (3) while acknowledgements await whole iterations, the loop never waits for a push
//                 without letting a new assignment interrupt it: the missing slot may become its
//                 own.
#ifndef CAPSTAN_WORKER_CORE_TASK_LOOP_H_
#define CAPSTAN_WORKER_CORE_TASK_LOOP_H_

#include <coroutine>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/types/ids.h"
#include "worker/core/coroutine.h"
#include "worker/core/push_pull_session.h"
#include "worker/core/row_cache.h"
#include "worker/core/task_board.h"

namespace capstan::worker {

// What the loop needs of the process around it.
class TaskPort {
 public:
  virtual ~TaskPort() = default;

  // ---- what the loop shares with the link to the scheduler

  // Runs `use` on the board, under its lock if it has one.
  virtual void UseBoard(const std::function<void(TaskBoard&)>& use) = 0;
  virtual bool Fenced() = 0;      // Somebody else has this rank: the task must end.
  virtual void ReportSoon() = 0;  // Progress that the scheduler should know at once.

  // ---- the servers, as in PushPullSession

  virtual bool HasRouting() = 0;
  // Starts a held push of the gradient that Train will compute for `work`, in a buffer of its own.
  // What was pulled for `work` stays until it was trained.
  virtual absl::StatusOr<OpId> Push(const Work& work) = 0;
  // Starts a pull into the task's one set of parameters: for `work`'s iteration, or a snapshot. Of
  // sparse tables what its samples need (Options::keyed).
  virtual absl::StatusOr<OpId> Pull(const Work& work, bool snapshot) = 0;
  virtual void CancelPull(OpId op) = 0;
  // A pull for training has ended well: what has been read.
  virtual RowsRead Pulled(const OpDone& done) { return {.staleness = done.staleness}; }

  // ---- calls that take time
  //
  // Each either has ended when it returns true, with its result written; or it returns false, the
  // port is then given the loop's handle by Suspended(), and resumes it once when the result is
  // written. At most one call is under way. Results live until the loop is resumed or destroyed.

  // Until the operation has ended: its OpDone. Or with the status kCancelled when a new assignment
  // has come, or the task has been fenced off, since the last such answer; the operation goes on.
  virtual bool Wait(OpId op, OpDone* done) = 0;
  // As Wait for `pull`, which brings the parameters of `work`; those that have come may be computed
  // with meanwhile. Called before Push and Train of `work`; without `pull` if its parameters are
  // here, and once more for the same work if the plan was made again. What goes wrong in computing
  // is for Train to say.
  virtual bool Forward(const Work& work, std::optional<OpId> pull, OpDone* done) {
    static_cast<void>(work);
    return !pull.has_value() || Wait(*pull, done);
  }
  // Until HasWork(board) and a routing table is there, or a FINISH, or the task is fenced off.
  virtual bool WaitForWork() = 0;
  // Computes the gradient of `work`, for which Forward was called last, for `push`, and releases
  // all of it on the way.
  virtual bool Train(const Work& work, OpId push, absl::StatusOr<WorkResult>* result) = 0;
  virtual bool Evaluate(const Work& work, absl::StatusOr<WorkResult>* result) = 0;
  // Writes the pulled tables, which have these versions.
  virtual bool Export(const Work& work, const absl::btree_map<TableId, Version>& versions,
                      absl::Status* result) = 0;

  // Only ports that suspend the loop are called.
  virtual void Suspended(std::coroutine_handle<> loop) { static_cast<void>(loop); }
};

class TaskLoop {
 public:
  struct Options {
    Acknowledgement acknowledgement = Acknowledgement::kEachPush;
    // Parameters are rows that a batch names: each batch has its own pull, evaluation too.
    bool keyed = false;
    // As PushPullSession's. Once Forward and Push have been called for a work, the port lets what
    // was pulled for it be written over.
    bool early_pulls = false;
  };
  TaskLoop(const Options& options, TaskPort& port);  // `port` outlives the loop.
  TaskLoop(const TaskLoop&) = delete;
  TaskLoop& operator=(const TaskLoop&) = delete;

  // Runs to the end, or with a port that suspends, to the first wait. REQUIRES: called once.
  void Start();

  bool ended() const { return running_.ended(); }
  // REQUIRES: ended(). OK: the scheduler said FINISH, or the task was fenced off. Otherwise why the
  // task gives up.
  const absl::Status& outcome() const { return running_.result(); }

  // Whether a WaitForWork would end: for ports.
  static bool HasWork(const TaskBoard& board, bool has_routing);

 private:
  // A push that is not yet known to be acknowledged.
  struct Outstanding {
    OpId op;
    Work work;
    WorkResult result;
  };

  // All of these end with kCancelled when the plan may be out of date: plan again.
  Coroutine<absl::Status> Run();
  Coroutine<absl::Status> Step(const Work& work);  // `work` lives as long as the coroutine.
  Coroutine<absl::Status> Rest();
  Coroutine<absl::Status> TrainOne(const Work& work);
  Coroutine<absl::Status> EvaluateOne(const Work& work);
  Coroutine<absl::Status> Export(const Work& work);
  // Forward with the parameters for `work`, as of its iteration; a snapshot for it.
  Coroutine<absl::Status> ForwardOne(const Work& work);
  Coroutine<absl::Status> EnsureSnapshot(const Work& work);
  // Until at most `left` pushes are outstanding.
  Coroutine<absl::Status> AwaitPushes(size_t left);
  // Until no push of an iteration before `iteration` is the oldest outstanding one.
  Coroutine<absl::Status> AwaitPushesBefore(Iteration iteration);
  Coroutine<absl::Status> AwaitOldestPush();
  // The operation's end, however often it is interrupted, unless the task is fenced off.
  Coroutine<absl::Status> AwaitUninterrupted(OpId op, OpDone* done);

  Work Plan();                   // The next work, kNone also without a routing table.
  bool Begin(const Work& work);  // False: it is not the next work any more.
  bool PlanIsOld();              // A newer assignment has come since Plan.
  absl::Status PullAhead();
  absl::Status StartPull(const Work& work);
  // The pull for `work` has ended: not OK if the work cannot go on.
  absl::Status TakePulled(const Work& work, const OpDone& pulled);
  void GivePullUp();
  // Parameters that were pulled for one are those that the other wants.
  bool SameParameters(const Work& a, const Work& b) const;
  void WriteDown(const Work& work, const WorkResult& result);
  bool AwaitsIterations() const {
    return options_.acknowledgement == Acknowledgement::kWholeIteration;
  }

  const Options options_;  // Constant after construction.
  TaskPort& port_;
  std::deque<Outstanding> outstanding_;        // In the order they were started.
  Generation planned_;                         // Of the assignment that the current work is of.
  std::optional<Work> held_;                   // What the parameters are for, if not a snapshot.
  std::optional<std::pair<OpId, Work>> pull_;  // Under way, and for what.
  std::optional<Work> held_snapshot_;
  absl::btree_map<TableId, Version> held_versions_;  // Of the snapshot.
  Coroutine<absl::Status> running_;                  // Declared last: it uses all of the others.
};

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_CORE_TASK_LOOP_H_
