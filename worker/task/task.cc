#include "worker/task/task.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/model/tables.h"
#include "common/observability/log.h"
#include "common/status/status_macros.h"
#include "common/tensor/model_file.h"
#include "worker/task/failures.h"
#include "worker/task/task_messages.h"

namespace capstan::worker {
namespace {

constexpr size_t kOutstandingPushesMax = 2;  // Each holds a gradient as large as the model.
constexpr int kBatchesAhead = 4;             // Decoded while one is computed.
constexpr int kLeasesHeld = 2;               // With fewer unfinished ones, ask for more at once.

TaskBoard::Options BoardOptions(const v1::JobSpec& spec) {
  return {
      .bsp = !spec.consistency().has_ssp() && !spec.consistency().has_asp(),
      .slots = spec.training().has_slots() ? spec.training().slots() : spec.resources().workers(),
      .batch_size = spec.training().batch_size(),
      .evaluation_batch_size = kEvaluationBatchSize};
}

MicroBatch ToMicroBatch(const Work& work) {
  return {
      .epoch = work.epoch, .positions = work.positions, .gradient_samples = work.gradient_samples};
}

WorkResult ResultOf(const Work& work, const BatchResult& batch) {
  return {.samples = work.positions.size(), .loss_sum = batch.loss_sum, .correct = batch.correct};
}

}  // namespace

Task::Task(const v1::TaskAssignment& assignment, const std::string& scheduler, const Clock& clock)
    : assignment_(assignment),
      clock_(clock),
      client_({.job = assignment.job_id(),
               .rank = Rank(assignment.rank()),
               .incarnation = Incarnation(assignment.incarnation())},
              clock),
      board_(BoardOptions(assignment.spec())),
      link_({.scheduler = scheduler},
            {.report = [this] { return Report(); },
             .receive = [this](const v1::SyncTaskResponse& response) { Receive(response); },
             .fenced =
                 [this](const absl::Status& status) {
                   LogWarning({.job = assignment_.job_id()}, "told to stop: {}",
                              std::string(status.message()));
                   absl::MutexLock lock(&mutex_);
                   fenced_ = true;
                   client_.Interrupt();
                 }}) {}

int Task::Run() {
  link_.Start();
  const std::optional<v1::Failure> failure = Loop();
  link_.Stop();
  if (Fenced()) return 0;
  if (failure.has_value()) {
    LogError({.job = assignment_.job_id()}, "{}", failure->message());
    absl::MutexLock lock(&mutex_);
    failure_ = failure;
  }
  // The last word: the totals of the last batches, or why the task gives up.
  const absl::Status told = link_.ReportOnce(Report());
  if (!failure.has_value()) return 0;
  return told.ok() ? 1 : 3;
}

std::optional<v1::Failure> Task::Loop() {
  if (std::optional<v1::Failure> failure = Prepare(); failure.has_value()) return failure;
  for (;;) {
    const Work work = NextWork();
    std::optional<v1::Failure> failure;
    switch (work.kind) {
      case Work::Kind::kTrain:
        failure = TrainOne(work);
        break;
      case Work::Kind::kEvaluate:
        failure = EvaluateOne(work);
        break;
      case Work::Kind::kExport:
        failure = Export(work);
        break;
      case Work::Kind::kFinish:
      case Work::Kind::kNone:
        return std::nullopt;
    }
    if (Fenced()) return std::nullopt;
    if (failure.has_value()) return failure;
  }
}

std::optional<v1::Failure> Task::Prepare() {
  absl::StatusOr<std::unique_ptr<Trainer>> trainer = Trainer::Create(assignment_.spec());
  if (!trainer.ok()) return FailureOf(trainer.status());
  trainer_ = *std::move(trainer);
  specs_ = MakeTables(trainer_->plan());
  for (const v1::TableSpec& table : specs_) {
    parameters_.emplace_back(static_cast<size_t>(table.elements()));
  }
  {
    absl::MutexLock lock(&mutex_);
    board_.SetTrainSamples(trainer_->train_samples());
  }
  LogInfo({.job = assignment_.job_id()}, "ready: {} training samples, {} parameters",
          trainer_->train_samples(), trainer_->plan().parameter_count);
  return std::nullopt;
}

Work Task::NextWork() {
  absl::MutexLock lock(&mutex_);
  auto something = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (fenced_) return true;
    return board_.Next().kind != Work::Kind::kNone && client_.routing_generation().value() != 0;
  };
  // The link reports while this waits; the scheduler's leases bound the wait.
  mutex_.Await(absl::Condition(&something));
  planned_ = board_.assignment().generation;
  return fenced_ ? Work{.kind = Work::Kind::kFinish} : board_.Next();
}

bool Task::PlanIsOld() {
  absl::MutexLock lock(&mutex_);
  return planned_ != board_.assignment().generation;
}

bool Task::Fenced() {
  absl::MutexLock lock(&mutex_);
  return fenced_;
}

std::optional<v1::Failure> Task::TrainOne(const Work& work) {
  bool ready = false;
  if (const absl::Status status = EnsureParameters(work.iteration, &ready); !status.ok()) {
    return FailureOf(status);
  }
  if (!ready) return std::nullopt;
  {
    absl::MutexLock lock(&mutex_);
    board_.Started(work);
  }
  // Push and pull start before there is a gradient: its parts leave as the backward pass ends them,
  // and the next parameters take the place of those that it has done with.
  const std::shared_ptr<TableArrays> gradient = FreeGradient();
  const absl::StatusOr<OpId> push =
      client_.Push(work.iteration, work.slots, gradient, PushStart::kHeld);
  if (!push.ok()) return FailureOf(push.status());
  if (const absl::Status status = PullAhead(); !status.ok()) return FailureOf(status);
  const absl::StatusOr<BatchResult> batch = trainer_->Train(
      ToMicroBatch(work), parameters_, gradient.get(), BatchesAhead(),
      [this, op = *push](int64_t first) { client_.Release(op, TableId(kParametersTable), first); });
  if (!batch.ok()) {
    return FailureOf(absl::Status(
        batch.status().code(),
        absl::StrCat("iteration ", work.iteration.value(), ": ", batch.status().message())));
  }
  for (const v1::TableSpec& table : specs_) client_.Release(*push, TableId(table.table()), 0);
  outstanding_.push_back({*push, work, ResultOf(work, *batch)});
  // Without a pull under way there may be no other work: say what was done as soon as it is.
  const absl::Status status = AwaitPushes(pull_.has_value() ? kOutstandingPushesMax - 1 : 0);
  return status.ok() ? std::nullopt : std::optional(FailureOf(status));
}

std::vector<MicroBatch> Task::BatchesAhead() {
  absl::MutexLock lock(&mutex_);
  std::vector<MicroBatch> ahead;
  for (const Work& next : board_.Upcoming(kBatchesAhead)) ahead.push_back(ToMicroBatch(next));
  return ahead;
}

absl::Status Task::PullAhead() {
  Work next;
  {
    absl::MutexLock lock(&mutex_);
    next = board_.Next();
  }
  if (next.kind != Work::Kind::kTrain || pull_.has_value() || held_iteration_ == next.iteration) {
    return absl::OkStatus();
  }
  held_iteration_.reset();
  CAPSTAN_ASSIGN_OR_RETURN(const OpId op,
                           client_.Pull(next.iteration, PullMode::kTrain, &parameters_));
  pull_ = {op, next.iteration};
  return absl::OkStatus();
}

absl::Status Task::EnsureParameters(Iteration iteration, bool* ready) {
  *ready = held_iteration_ == iteration;
  if (*ready) return absl::OkStatus();
  held_snapshot_.reset();
  if (pull_.has_value() && pull_->second != iteration) {
    client_.CancelPull(pull_->first);
    pull_.reset();
  }
  CAPSTAN_RETURN_IF_ERROR(AwaitPushes(0));
  // Waiting for the pushes may have used the interrupt up.
  if (PlanIsOld()) return absl::OkStatus();
  if (!pull_.has_value()) {
    held_iteration_.reset();
    CAPSTAN_ASSIGN_OR_RETURN(const OpId op,
                             client_.Pull(iteration, PullMode::kTrain, &parameters_));
    pull_ = {op, iteration};
  }
  const absl::StatusOr<OpResult> result = client_.Wait(pull_->first);
  if (absl::IsCancelled(result.status())) return absl::OkStatus();  // A new assignment: plan again.
  pull_.reset();
  absl::MutexLock lock(&mutex_);
  if (absl::IsOutOfRange(result.status())) {
    board_.SkipTo(client_.OldestIteration());
    link_.Wake();
    return absl::OkStatus();
  }
  if (!result.ok()) return result.status();
  board_.SawStaleness(result->staleness);
  held_iteration_ = iteration;
  *ready = true;
  return absl::OkStatus();
}

absl::Status Task::AwaitPushes(size_t left) {
  while (outstanding_.size() > left) {
    const Outstanding push = outstanding_.front();
    OpResult ignored;
    CAPSTAN_RETURN_IF_ERROR(AwaitUninterrupted(push.op, &ignored));
    outstanding_.pop_front();
    absl::MutexLock lock(&mutex_);
    DoneLocked(push.work, push.result);
  }
  return absl::OkStatus();
}

void Task::DoneLocked(const Work& work, const WorkResult& result) {
  board_.Done(work, result);
  if (board_.Idle() || board_.unfinished_leases() < kLeasesHeld) link_.Wake();
}

absl::Status Task::AwaitUninterrupted(OpId op, OpResult* result) {
  for (;;) {
    const absl::StatusOr<OpResult> waited = client_.Wait(op);
    if (waited.ok()) *result = *waited;
    if (!absl::IsCancelled(waited.status()) || Fenced()) return waited.status();
  }
}

std::shared_ptr<TableArrays> Task::FreeGradient() {
  for (const std::shared_ptr<TableArrays>& gradient : gradients_) {
    if (gradient.use_count() == 1) return gradient;
  }
  gradients_.push_back(std::make_shared<TableArrays>(parameters_));
  return gradients_.back();
}

absl::Status Task::EnsureSnapshot(Epoch epoch, Phase phase) {
  const std::pair<Phase, Epoch> wanted(phase, epoch);
  if (held_snapshot_ == wanted) return absl::OkStatus();
  if (pull_.has_value()) client_.CancelPull(pull_->first);
  pull_.reset();
  held_iteration_.reset();
  CAPSTAN_RETURN_IF_ERROR(AwaitPushes(0));
  CAPSTAN_ASSIGN_OR_RETURN(const OpId op,
                           client_.Pull(Iteration(0), PullMode::kSnapshot, &parameters_));
  OpResult result;
  CAPSTAN_RETURN_IF_ERROR(AwaitUninterrupted(op, &result));
  held_versions_ = std::move(result.versions);
  held_snapshot_ = wanted;
  return absl::OkStatus();
}

std::optional<v1::Failure> Task::EvaluateOne(const Work& work) {
  if (const absl::Status status = EnsureSnapshot(work.epoch, Phase::kEvaluate); !status.ok()) {
    return FailureOf(status);
  }
  const absl::StatusOr<BatchResult> batch = trainer_->Evaluate(work.positions, parameters_);
  if (!batch.ok()) return FailureOf(batch.status());
  absl::MutexLock lock(&mutex_);
  board_.Started(work);
  DoneLocked(work, ResultOf(work, *batch));
  return std::nullopt;
}

std::optional<v1::Failure> Task::Export(const Work& work) {
  absl::Status status = EnsureSnapshot(work.epoch, Phase::kExport);
  if (status.ok()) {
    std::vector<TableValues> tables;
    for (size_t i = 0; i < specs_.size(); ++i) {
      tables.push_back({.spec = &specs_[i],
                        .version = held_versions_.at(TableId(static_cast<int32_t>(i))).value(),
                        .values = parameters_[i]});
    }
    status = WriteModelFiles(work.export_path, assignment_.job_id(), assignment_.spec(), tables);
  }
  if (!status.ok()) return FailureOf(status);
  LogInfo({.job = assignment_.job_id()}, "wrote the model to {}", work.export_path);
  absl::MutexLock lock(&mutex_);
  board_.Exported();
  link_.Wake();
  return std::nullopt;
}

v1::SyncTaskRequest Task::Report() {
  v1::SyncTaskRequest request;
  request.set_job_id(assignment_.job_id());
  request.set_rank(assignment_.rank());
  request.set_incarnation(assignment_.incarnation());
  request.set_routing_seen(client_.needs_routing() ? 0 : client_.routing_generation().value());
  if (const SessionWait wait = client_.CurrentWait(); wait.waiting) {
    *request.mutable_wait() = WaitToProto(wait, clock_.Now());
  }
  absl::MutexLock lock(&mutex_);
  request.set_assignment_seen(board_.assignment().generation.value());
  *request.mutable_progress() = ProgressToProto(board_);
  request.set_idle(board_.Idle());
  if (failure_.has_value()) *request.mutable_failure() = *failure_;
  return request;
}

void Task::Receive(const v1::SyncTaskResponse& response) {
  if (response.has_routing()) {
    if (const absl::Status status = client_.SetRouting(response.routing()); !status.ok()) {
      LogError({.job = assignment_.job_id()}, "{}", std::string(status.message()));
    }
  }
  absl::MutexLock lock(&mutex_);
  if (!response.has_assignment()) return;
  const absl::StatusOr<Assignment> assignment = AssignmentFromProto(response.assignment());
  if (!assignment.ok()) {
    LogError({.job = assignment_.job_id()}, "{}", std::string(assignment.status().message()));
    return;
  }
  if (board_.Take(*assignment)) client_.Interrupt();
}

}  // namespace capstan::worker
