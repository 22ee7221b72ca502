#include "worker/core/task_loop.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "common/status/annotate.h"

namespace capstan::worker {
namespace {

// While one push is on its way, the next gradient may be computed.
constexpr size_t kPushesBehind = 1;

absl::Status PlanAgain() { return absl::CancelledError("the plan may be out of date"); }

// The awaitable of a port's call: suspends the loop only if the call has not ended.
class PortCall {
 public:
  PortCall(TaskPort& port, bool ended) : port_(port), ended_(ended) {}
  bool await_ready() const { return ended_; }
  void await_suspend(std::coroutine_handle<> loop) { port_.Suspended(loop); }
  void await_resume() const {}

 private:
  TaskPort& port_;
  const bool ended_;
};

}  // namespace

TaskLoop::TaskLoop(const Options& options, TaskPort& port) : options_(options), port_(port) {}

void TaskLoop::Start() { running_ = Run(); }

bool TaskLoop::HasWork(const TaskBoard& board, bool has_routing) {
  const Work::Kind kind = board.Next().kind;
  return kind == Work::Kind::kFinish || (kind != Work::Kind::kNone && has_routing);
}

Coroutine<absl::Status> TaskLoop::Run() {
  while (!port_.Fenced()) {
    const Work work = Plan();
    if (work.kind == Work::Kind::kFinish) co_return absl::OkStatus();
    Coroutine<absl::Status> step = Step(work);
    const absl::Status status = co_await step;
    // A server that fences this incarnation off means the same as a scheduler that does.
    if (absl::IsAborted(status)) co_return absl::OkStatus();
    if (port_.Fenced()) break;
    if (!status.ok() && !absl::IsCancelled(status)) co_return status;
  }
  co_return absl::OkStatus();
}

Work TaskLoop::Plan() {
  const bool has_routing = port_.HasRouting();
  Work work;
  port_.UseBoard([&](TaskBoard& board) {
    planned_ = board.assignment().generation;
    if (HasWork(board, has_routing)) work = board.Next();
  });
  return work;
}

bool TaskLoop::Begin(const Work& work) {
  bool begun = false;
  port_.UseBoard([&](TaskBoard& board) { begun = board.Start(work); });
  return begun;
}

bool TaskLoop::PlanIsOld() {
  bool old = false;
  port_.UseBoard([&](TaskBoard& board) { old = planned_ != board.assignment().generation; });
  return old;
}

Coroutine<absl::Status> TaskLoop::Step(const Work& work) {
  switch (work.kind) {
    case Work::Kind::kTrain:
      return options_.own_pace ? RunOne(work) : TrainOne(work);
    case Work::Kind::kEvaluate:
      return EvaluateOne(work);
    case Work::Kind::kExport:
      return Export(work);
    case Work::Kind::kNone:
    case Work::Kind::kFinish:
      break;
  }
  return Rest();
}

Coroutine<absl::Status> TaskLoop::Rest() {
  if (!outstanding_.empty()) {
    Coroutine<absl::Status> acknowledged = AwaitOldestPush();
    const absl::Status status = co_await acknowledged;
    co_return status;
  }
  PortCall work(port_, port_.WaitForWork());
  co_await work;
  co_return absl::OkStatus();
}

Coroutine<absl::Status> TaskLoop::TrainOne(const Work& work) {
  Coroutine<absl::Status> forward = ForwardOne(work);
  const absl::Status ready = co_await forward;
  if (!ready.ok()) co_return ready;
  // The forward pass takes time: a pause that came meanwhile has been answered with "idle".
  if (!Begin(work)) co_return PlanAgain();
  // Push and pull start before there is a gradient: its parts are sent as the backward pass makes
  // them, and the next parameters overwrite those that it does not need any more.
  const absl::StatusOr<OpId> push = port_.Push(work);
  if (!push.ok()) co_return push.status();
  const absl::Status pulling = PullAhead();
  if (!pulling.ok()) co_return pulling;
  absl::StatusOr<WorkResult> result;
  PortCall training(port_, port_.Train(work, *push, &result));
  co_await training;
  if (!result.ok()) {
    co_return Annotate(result.status(), absl::StrCat("iteration ", work.iteration.value()));
  }
  outstanding_.push_back({*push, work, *result});
  // The other slots of the iteration may be this task's own, so it does not wait: see ForwardOne.
  if (AwaitsIterations()) co_return absl::OkStatus();
  // If no pull is under way there may be no other work: wait, to report what is done at once.
  Coroutine<absl::Status> pushes = AwaitPushes(pull_.has_value() ? kPushesBehind : 0);
  const absl::Status status = co_await pushes;
  co_return status;
}

Coroutine<absl::Status> TaskLoop::RunOne(const Work& work) {
  held_snapshot_.reset();  // The run's pushes make it old.
  if (!Begin(work)) co_return PlanAgain();
  absl::StatusOr<WorkResult> result;
  PortCall run(port_, port_.RunProgram(work, &result));
  co_await run;
  if (absl::IsCancelled(result.status())) {
    port_.UseBoard([&work](TaskBoard& board) { board.GiveUp(work); });
  }
  if (!result.ok()) co_return result.status();
  WriteDown(work, *result, Version(0));
  co_return absl::OkStatus();
}

bool TaskLoop::SameParameters(const Work& a, const Work& b) const {
  if (a.kind != b.kind || a.iteration != b.iteration) return false;
  if (a.kind != Work::Kind::kTrain && a.epoch != b.epoch) return false;
  return !options_.keyed || (a.epoch == b.epoch && a.positions == b.positions);
}

Coroutine<absl::Status> TaskLoop::ForwardOne(const Work& work) {
  const bool held = held_.has_value() && SameParameters(*held_, work);
  if (!held) {
    held_snapshot_.reset();
    if (pull_.has_value() && !SameParameters(pull_->second, work)) GivePullUp();
    if (!AwaitsIterations() && !options_.early_pulls) {
      Coroutine<absl::Status> pushes = AwaitPushes(0);
      const absl::Status acknowledged = co_await pushes;
      if (!acknowledged.ok()) co_return acknowledged;
      // Waiting for the pushes may have used the interrupt up.
      if (PlanIsOld()) co_return PlanAgain();
    }
    if (!pull_.has_value()) {
      const absl::Status started = StartPull(work);
      if (!started.ok()) co_return started;
    }
  }
  OpDone pulled;
  const std::optional<OpId> pull = held ? std::nullopt : std::optional(pull_->first);
  PortCall forward(port_, port_.Forward(work, pull, &pulled));
  co_await forward;
  if (!held) {
    const absl::Status taken = TakePulled(work, pulled);
    if (!taken.ok()) co_return taken;
  }
  if (!AwaitsIterations()) co_return absl::OkStatus();
  // The parameters are there, so the earlier iterations are complete: their acknowledgements are on
  // the way, and each of them frees the memory of a gradient.
  Coroutine<absl::Status> earlier = AwaitPushesBefore(work.iteration);
  const absl::Status status = co_await earlier;
  co_return status;
}

absl::Status TaskLoop::TakePulled(const Work& work, const OpDone& pulled) {
  if (absl::IsCancelled(pulled.status)) return pulled.status;  // The pull goes on.
  pull_.reset();
  if (absl::IsOutOfRange(pulled.status)) {
    port_.UseBoard([&pulled](TaskBoard& board) { board.SkipTo(pulled.oldest); });
    port_.ReportSoon();
    return PlanAgain();
  }
  if (!pulled.status.ok()) return pulled.status;
  const RowsRead read = port_.Pulled(pulled);
  if (read.again) return PlanAgain();
  port_.UseBoard([&read](TaskBoard& board) { board.SawRead(read); });
  held_ = work;
  return absl::OkStatus();
}

absl::Status TaskLoop::PullAhead() {
  Work next;
  port_.UseBoard([&next](TaskBoard& board) { next = board.Next(); });
  if (next.kind != Work::Kind::kTrain || pull_.has_value()) return absl::OkStatus();
  if (held_.has_value() && SameParameters(*held_, next)) return absl::OkStatus();
  return StartPull(next);
}

absl::Status TaskLoop::StartPull(const Work& work) {
  held_.reset();
  const absl::StatusOr<OpId> op = port_.Pull(work, /*snapshot=*/false);
  if (!op.ok()) return op.status();
  pull_ = {*op, work};
  return absl::OkStatus();
}

void TaskLoop::GivePullUp() {
  if (pull_.has_value()) port_.CancelPull(pull_->first);
  pull_.reset();
}

Coroutine<absl::Status> TaskLoop::AwaitPushes(size_t left) {
  while (outstanding_.size() > left) {
    Coroutine<absl::Status> oldest = AwaitOldestPush();
    const absl::Status status = co_await oldest;
    if (!status.ok()) co_return status;
  }
  co_return absl::OkStatus();
}

Coroutine<absl::Status> TaskLoop::AwaitPushesBefore(Iteration iteration) {
  while (!outstanding_.empty() && outstanding_.front().work.iteration < iteration) {
    Coroutine<absl::Status> oldest = AwaitOldestPush();
    const absl::Status status = co_await oldest;
    if (!status.ok()) co_return status;
  }
  co_return absl::OkStatus();
}

Coroutine<absl::Status> TaskLoop::AwaitOldestPush() {
  OpDone done;
  if (AwaitsIterations()) {
    PortCall wait(port_, port_.Wait(outstanding_.front().op, &done));
    co_await wait;
  } else {
    Coroutine<absl::Status> wait = AwaitUninterrupted(outstanding_.front().op, &done);
    co_await wait;
  }
  if (!done.status.ok()) co_return done.status;
  WriteDown(outstanding_.front().work, outstanding_.front().result, done.pushed_version);
  outstanding_.pop_front();
  co_return absl::OkStatus();
}

Coroutine<absl::Status> TaskLoop::AwaitUninterrupted(OpId op, OpDone* done) {
  for (;;) {
    PortCall wait(port_, port_.Wait(op, done));
    co_await wait;
    if (!absl::IsCancelled(done->status) || port_.Fenced()) co_return done->status;
  }
}

void TaskLoop::WriteDown(const Work& work, const WorkResult& result, Version pushed) {
  const Iteration applied(pushed.value());  // BSP: every shard has applied those below it.
  bool report = false;
  port_.UseBoard([&](TaskBoard& board) {
    board.Done(work, result);
    // BSP with backups: the others have gone on without this task.
    if (applied > work.iteration.Next()) board.SkipTo(applied);
    report = board.Idle() || board.WantsLeases();
  });
  if (report) port_.ReportSoon();
}

Coroutine<absl::Status> TaskLoop::EnsureSnapshot(const Work& work) {
  if (held_snapshot_.has_value() && SameParameters(*held_snapshot_, work)) {
    co_return absl::OkStatus();
  }
  GivePullUp();
  held_.reset();
  Coroutine<absl::Status> pushes = AwaitPushes(0);
  const absl::Status acknowledged = co_await pushes;
  if (!acknowledged.ok()) co_return acknowledged;
  const absl::StatusOr<OpId> op = port_.Pull(work, /*snapshot=*/true);
  if (!op.ok()) co_return op.status();
  OpDone pulled;
  Coroutine<absl::Status> pull = AwaitUninterrupted(*op, &pulled);
  const absl::Status status = co_await pull;
  if (!status.ok()) co_return status;
  held_versions_ = std::move(pulled.versions);
  held_snapshot_ = work;
  co_return absl::OkStatus();
}

Coroutine<absl::Status> TaskLoop::EvaluateOne(const Work& work) {
  Coroutine<absl::Status> snapshot = EnsureSnapshot(work);
  const absl::Status ready = co_await snapshot;
  if (!ready.ok()) co_return ready;
  absl::StatusOr<WorkResult> result;
  PortCall evaluation(port_, port_.Evaluate(work, &result));
  co_await evaluation;
  if (!result.ok()) co_return result.status();
  if (!Begin(work)) co_return PlanAgain();
  WriteDown(work, *result, Version(0));
  co_return absl::OkStatus();
}

Coroutine<absl::Status> TaskLoop::Export(const Work& work) {
  Coroutine<absl::Status> snapshot = EnsureSnapshot(work);
  const absl::Status ready = co_await snapshot;
  if (!ready.ok()) co_return ready;
  absl::Status written;
  PortCall writing(port_, port_.Export(work, held_versions_, &written));
  co_await writing;
  if (!written.ok()) co_return written;
  port_.UseBoard([](TaskBoard& board) { board.Exported(); });
  port_.ReportSoon();
  co_return absl::OkStatus();
}

}  // namespace capstan::worker
