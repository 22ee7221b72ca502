#include "worker/task/task.h"

#include <utility>

#include "common/model/tables.h"
#include "common/observability/log.h"
#include "common/status/status_macros.h"
#include "common/tensor/model_file.h"
#include "worker/task/failures.h"
#include "worker/task/task_messages.h"
#include "worker/task/task_options.h"

namespace capstan::worker {
namespace {

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
               .incarnation = Incarnation(assignment.incarnation()),
               .session = SessionOptions(assignment.spec()),
               .formats = WireFormats(assignment.spec()),
               .shared_memory_bytes = SharedMemoryBytes(assignment.spec())},
              clock),
      board_(BoardOptions(assignment.spec(), kEvaluationBatchSize)),
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
  const absl::Status status = Loop();
  link_.Stop();
  if (Fenced()) return 0;
  if (!status.ok()) {
    LogError({.job = assignment_.job_id()}, "{}", std::string(status.message()));
    absl::MutexLock lock(&mutex_);
    failure_ = FailureOf(status);
  }
  // The last word: the totals of the last batches, or why the task gives up.
  const absl::Status told = link_.ReportOnce(Report());
  if (status.ok()) return 0;
  return told.ok() ? 1 : 3;
}

absl::Status Task::Loop() {
  CAPSTAN_RETURN_IF_ERROR(Prepare());
  TaskLoop loop({.acknowledgement = AcknowledgementOf(assignment_.spec())}, *this);
  loop.Start();
  return loop.outcome();
}

absl::Status Task::Prepare() {
  CAPSTAN_ASSIGN_OR_RETURN(trainer_, Trainer::Create(assignment_.spec()));
  specs_ = MakeTables(trainer_->plan());
  for (const v1::TableSpec& table : specs_) {
    parameters_.emplace_back(static_cast<size_t>(table.elements()));
  }
  UseBoard([this](TaskBoard& board) { board.SetTrainSamples(trainer_->train_samples()); });
  LogInfo({.job = assignment_.job_id()}, "ready: {} training samples, {} parameters",
          trainer_->train_samples(), trainer_->plan().parameter_count);
  return absl::OkStatus();
}

void Task::UseBoard(const std::function<void(TaskBoard&)>& use) {
  absl::MutexLock lock(&mutex_);
  use(board_);
}

bool Task::Fenced() {
  absl::MutexLock lock(&mutex_);
  return fenced_;
}

void Task::ReportSoon() { link_.Wake(); }

bool Task::HasRouting() { return client_.routing_generation().value() != 0; }

absl::StatusOr<OpId> Task::Push(Iteration iteration, Range slots) {
  gradient_ = FreeGradient();
  return client_.Push(iteration, slots, gradient_, PushStart::kHeld);
}

absl::StatusOr<OpId> Task::Pull(const Work& work, bool snapshot) {
  return client_.Pull(work.iteration, snapshot ? PullMode::kSnapshot : PullMode::kTrain,
                      &parameters_);
}

void Task::CancelPull(OpId op) { client_.CancelPull(op); }

bool Task::Wait(OpId op, OpDone* done) {
  absl::StatusOr<OpResult> result = client_.Wait(op);
  *done = {.op = op, .status = result.status()};
  if (result.ok()) {
    done->staleness = result->staleness;
    done->versions = std::move(result->versions);
  } else if (absl::IsOutOfRange(result.status())) {
    done->oldest = client_.OldestIteration();
  }
  return true;
}

bool Task::WaitForWork() {
  absl::MutexLock lock(&mutex_);
  auto something = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return fenced_ || TaskLoop::HasWork(board_, HasRouting());
  };
  // The link reports while this waits; the scheduler's leases bound the wait.
  mutex_.Await(absl::Condition(&something));
  return true;
}

bool Task::Train(const Work& work, const std::vector<Work>& ahead, OpId push,
                 absl::StatusOr<WorkResult>* result) {
  std::vector<MicroBatch> next;
  for (const Work& later : ahead) next.push_back(ToMicroBatch(later));
  // Only the pool and the push hold the gradient from now on.
  const std::shared_ptr<TableArrays> gradient = std::exchange(gradient_, nullptr);
  const absl::StatusOr<BatchResult> batch = trainer_->Train(
      ToMicroBatch(work), parameters_, gradient.get(), next,
      [this, push](int64_t first) { client_.Release(push, TableId(kParametersTable), first); });
  if (!batch.ok()) {
    *result = batch.status();
    return true;
  }
  for (const v1::TableSpec& table : specs_) client_.Release(push, TableId(table.table()), 0);
  *result = ResultOf(work, *batch);
  return true;
}

std::shared_ptr<TableArrays> Task::FreeGradient() {
  for (const std::shared_ptr<TableArrays>& gradient : gradients_) {
    if (gradient.use_count() == 1) return gradient;
  }
  gradients_.push_back(std::make_shared<TableArrays>(parameters_));
  return gradients_.back();
}

bool Task::Evaluate(const Work& work, absl::StatusOr<WorkResult>* result) {
  const absl::StatusOr<BatchResult> batch = trainer_->Evaluate(work.positions, parameters_);
  if (batch.ok()) {
    *result = ResultOf(work, *batch);
  } else {
    *result = batch.status();
  }
  return true;
}

bool Task::Export(const Work& work, const absl::btree_map<TableId, Version>& versions,
                  absl::Status* result) {
  std::vector<TableValues> tables;
  for (size_t i = 0; i < specs_.size(); ++i) {
    tables.push_back({.spec = &specs_[i],
                      .version = versions.at(TableId(static_cast<int32_t>(i))).value(),
                      .values = parameters_[i]});
  }
  *result = WriteModelFiles(work.export_path, assignment_.job_id(), assignment_.spec(), tables);
  if (result->ok()) {
    LogInfo({.job = assignment_.job_id()}, "wrote the model to {}", work.export_path);
  }
  return true;
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
