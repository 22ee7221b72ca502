// SimTask as a program at its own pace, and what worker/task does for one: it pushes to and pulls
// from single tables, some at a time, and rests while the job stands still.
#include <algorithm>
#include <utility>

#include "tests/simulation/shells/sim_task.h"

namespace capstan::sim {
namespace {

constexpr size_t kOperationsAtOnce = 3;
constexpr double kPushes = 0.6;            // The share of all operations.
constexpr int64_t kPushesMax = 1'000'000;  // A rank makes fewer: each has a number of its own.

}  // namespace

bool SimTask::RunProgram(const worker::Work& work, absl::StatusOr<worker::WorkResult>* result) {
  run_ = Run{.work = work, .result = result, .left = job_->options.own_operations};
  waiting_ = Waiting::kRun;
  GoOnWithRun();
  return false;
}

bool SimTask::RunIsTakenAway() {
  const worker::Assignment& now = board_.assignment();
  return fenced_ || now.phase != worker::Phase::kTrain ||
         std::none_of(now.samples.begin(), now.samples.end(),
                      [this](const auto& lease) { return lease.lease == run_->work.lease; });
}

void SimTask::GoOnWithRun() {
  if (!run_.has_value() || resuming_) return;
  const bool idle = run_->operations.empty();
  if (RunIsTakenAway()) {
    if (!idle && !fenced_) return;
    ++world_->reached[Reached::kRunTakenAway];
    return EndRun(absl::CancelledError("the run was taken away"));
  }
  if (board_.assignment().paused) {
    if (!idle || board_.Idle()) return;
    ++world_->reached[Reached::kRunRested];
    board_.SetResting();
    return ReportSoon();
  }
  if (run_->left == 0) {
    if (!idle) return;
    ++world_->reached[Reached::kRunFinished];
    const Batch run{.epoch = run_->work.epoch, .positions = run_->work.positions};
    job_->Tell([&](Checker& checker) { checker.BatchDone(task_key_, run); });
    return EndRun(worker::WorkResult{.samples = 1});
  }
  if (run_->thinking || run_->operations.size() >= kOperationsAtOnce) return;
  StartRunOperation();
}

void SimTask::StartRunOperation() {
  --run_->left;
  run_->thinking = true;
  const auto tables = static_cast<int64_t>(parameters_.size());
  const TableId table(static_cast<int32_t>(world_->prng.Between(0, tables - 1)));
  const bool push = world_->prng.Chance(kPushes);
  const JobOptions& options = job_->options;
  process_->After(world_->prng.Between(options.compute_min, options.compute_max), [this] {
    if (run_.has_value()) run_->thinking = false;
    GoOnWithRun();
  });
  const absl::StatusOr<worker::OpId> op = push ? StartRunPush(table) : StartRunPull(table);
  if (!op.ok()) EndRun(op.status());
}

absl::StatusOr<worker::OpId> SimTask::StartRunPush(TableId table) {
  const auto index = static_cast<size_t>(table.value());
  const int64_t number = kPushesMax * task_key_.rank.value() + run_numbers_++;
  Gradient gradient{
      .batch = {.iteration = Iteration(run_pushes_[index]++), .positions = {number, number + 1}},
      .values = std::make_shared<Arrays>(job_->workload.Zeros())};
  job_->workload.Backward(gradient.batch, 0, 1, parameters_, table.value(), 0,
                          static_cast<int64_t>(parameters_[index].size()), gradient.values.get());
  worker::OpPayload payload = PayloadOf(gradient);
  if (index > 0) payload.keys = std::make_shared<const worker::AllTableKeys>();
  worker::PushPullCore::Actions actions;
  const absl::StatusOr<worker::OpId> op = core_.Start(
      {.kind = worker::OpKind::kPush, .iteration = gradient.batch.iteration, .table = table},
      std::move(payload), process_->Now(), &actions);
  if (!op.ok()) return op;
  gradients_[*op] = std::move(gradient);
  run_->operations[*op];
  Perform(std::move(actions));
  return op;
}

absl::StatusOr<worker::OpId> SimTask::StartRunPull(TableId table) {
  const auto index = static_cast<size_t>(table.value());
  std::vector<float> values(parameters_[index].size());
  const auto keys = std::make_shared<const worker::AllTableKeys>(
      index == 0 ? job_->workload.keys() : worker::AllTableKeys());
  worker::PushPullCore::Actions actions;
  const absl::StatusOr<worker::OpId> op =
      core_.Start({.iteration = Iteration(run_pushes_[index]), .table = table},
                  {.gradient = nullptr,
                   .gradient_halves = nullptr,
                   .destination = worker::PullArrays(table, absl::MakeSpan(values)),
                   .keys = keys},
                  process_->Now(), &actions);
  if (!op.ok()) return op;
  run_->operations[*op] = std::move(values);  // Its elements stay where they are.
  Perform(std::move(actions));
  return op;
}

void SimTask::EndRunOperation(worker::OpId op) {
  const absl::Status status = core_.TakeEnded(op).status;
  run_->operations.erase(op);
  if (!status.ok()) EndRun(status);
}

void SimTask::EndRun(const absl::StatusOr<worker::WorkResult>& result) {
  const Run run = *std::move(run_);
  run_.reset();
  *run.result = result;
  for (const auto& [op, values] : run.operations) {  // Only if it has failed, or was fenced off.
    if (gradients_.contains(op)) continue;           // A push goes on.
    worker::PushPullCore::Actions actions;
    core_.CancelPull(op, process_->Now(), &actions);
    Perform(std::move(actions));
  }
  Resume();
}

}  // namespace capstan::sim
