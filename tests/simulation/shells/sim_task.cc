#include "tests/simulation/shells/sim_task.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/simulation/network/methods.h"
#include "tests/simulation/shells/sim_task_options.h"
#include "worker/task/failures.h"
#include "worker/task/task_messages.h"

namespace capstan::sim {
namespace {

constexpr absl::Duration kBetweenWords =
    absl::Seconds(10);  // Pause between two lines about progress.
constexpr absl::Duration kStandsStillMax = absl::Minutes(5);  // The scheduler's limit.
constexpr int kReleaseSteps = 3;  // Parts in which a gradient becomes ready.

}  // namespace

SimTask::~SimTask() = default;

SimTask::SimTask(World* world, Process* process, SimNetwork::EndpointId self,
                 const v1::TaskAssignment& assignment, std::function<void(int)> exited)
    : world_(world),
      job_(&world->JobOf(assignment.job_id())),
      process_(process),
      self_(self),
      assignment_(assignment),
      task_key_{assignment.job_id(), Rank(assignment.rank()),
                Incarnation(assignment.incarnation())},
      caller_{task_key_.job, task_key_.rank, task_key_.incarnation},
      exited_(std::move(exited)),
      board_(BoardOptions(*job_, assignment.spec())),
      core_(CoreOptions()),
      parameters_(job_->workload.Zeros()),
      run_pushes_(parameters_.size()),
      row_cache_(MakeRowCache(job_->options, assignment.spec())) {}

void SimTask::Start() {
  prepared_ = job_->options.prepare_max == absl::ZeroDuration();
  Report();
  if (prepared_) return BeginLoop();
  TakeTime("examples read", job_->options.prepare_max, [this] {
    prepared_ = true;
    ReportSoon();
    BeginLoop();
  });
}

void SimTask::TakeTime(const std::string& what, absl::Duration longest,
                       std::function<void()> done) {
  const absl::Duration time = world_->prng.Between(absl::ZeroDuration(), longest);
  if (time > kStandsStillMax) ++world_->reached[Reached::kLongWork];
  activity_.set_what(what);
  GoOn(time, std::move(done));
}

void SimTask::GoOn(absl::Duration rest, std::function<void()> done) {
  const absl::Duration step = std::min(rest, kBetweenWords);
  process_->After(step, [this, left = rest - step, done = std::move(done)]() mutable {
    activity_.set_done(activity_.done() + 1);
    if (left > absl::ZeroDuration()) return GoOn(left, std::move(done));
    activity_.Clear();
    done();
  });
}

void SimTask::BeginLoop() {
  loop_ = std::make_unique<worker::TaskLoop>(
      worker::TaskLoop::Options{
          .acknowledgement = worker::AcknowledgementOf(assignment_.spec()),
          .keyed = !job_->workload.keys().empty(),
          .early_pulls = worker::EarlyPulls(assignment_.spec(), /*on_gpu=*/false),
          .own_pace = assignment_.spec().program().own_pace()},
      *this);
  loop_->Start();
  FinishIfEnded();
}

// ---------------------------------------------------------------- the loop

void SimTask::UseBoard(const std::function<void(worker::TaskBoard&)>& use) {
  use(board_);
  NoteWork();
}

void SimTask::NoteWork() {
  const bool trains = board_.assignment().phase == worker::Phase::kTrain;
  const int leases = trains ? board_.unfinished_leases() : 0;
  job_->Tell([&](Checker& checker) {
    checker.WorkChanged(task_key_, board_.assignment().start_iteration, leases);
  });
}

void SimTask::Resume() {
  if (resuming_) return;
  resuming_ = true;
  waiting_ = Waiting::kNothing;
  process_->After(absl::ZeroDuration(), [this] {
    resuming_ = false;
    suspended_.resume();
    FinishIfEnded();
  });
}

void SimTask::Changed() {
  if (waiting_ == Waiting::kWork) {
    if (fenced_ || worker::TaskLoop::HasWork(board_, HasRouting())) Resume();
  } else if (waiting_ == Waiting::kRun) {
    GoOnWithRun();
  } else if (waiting_ == Waiting::kOp) {
    if (HasEnded(awaited_, awaited_done_)) Resume();
  } else if (waiting_ == Waiting::kParameters && HasEnded(awaited_, awaited_done_)) {
    awaited_done_->status.ok() ? ComputeForward() : Resume();
  }
}

void SimTask::FinishIfEnded() {
  if (ending_ || loop_ == nullptr || !loop_->ended()) return;
  failure_ = fenced_ ? absl::OkStatus() : loop_->outcome();
  if (!failure_.ok()) {
    world_->trace.Narrate(absl::StrCat(process_->name(), " gives up: ", failure_.ToString()));
  }
  ending_ = true;
  process_->CancelTimer(report_timer_);
  process_->CancelTimer(session_timer_);
  process_->CancelTimer(late_push_timer_);
  if (fenced_) return exited_(0);
  LastWord(failure_.ok() ? 0 : 1);
}

bool SimTask::HasEnded(worker::OpId op, worker::OpDone* done) {
  if (core_.FindEnded(op) != nullptr) {
    *done = core_.TakeEnded(op);
    return true;
  }
  if (std::exchange(interrupted_, false)) {
    done->status = absl::CancelledError("interrupted");
    return true;
  }
  return false;
}

bool SimTask::Wait(worker::OpId op, worker::OpDone* done) {
  if (HasEnded(op, done)) return true;
  waiting_ = Waiting::kOp;
  awaited_ = op;
  awaited_done_ = done;
  return false;
}

// Takes time once the parameters are there: much may come in meanwhile. The numbers are Train's.
bool SimTask::Forward(const worker::Work&, std::optional<worker::OpId> pull, worker::OpDone* done) {
  if (pull.has_value() && !Wait(*pull, done)) {
    waiting_ = Waiting::kParameters;
    return false;
  }
  if (pull.has_value() && !done->status.ok()) return true;
  ComputeForward();
  return false;
}

void SimTask::ComputeForward() {
  waiting_ = Waiting::kTime;
  process_->After(ComputeStep(), [this] { Resume(); });
}

absl::Duration SimTask::ComputeStep() {
  const JobOptions& options = job_->options;
  return world_->prng.Between(options.compute_min, options.compute_max) / kReleaseSteps;
}

bool SimTask::WaitForWork() {
  if (fenced_ || worker::TaskLoop::HasWork(board_, HasRouting())) return true;
  waiting_ = Waiting::kWork;
  return false;
}

bool SimTask::Train(const worker::Work& work, worker::OpId push,
                    absl::StatusOr<worker::WorkResult>* result) {
  gradients_[push].batch = {.epoch = work.epoch,
                            .iteration = work.iteration,
                            .slots = work.slots,
                            .positions = work.positions};
  const Batch& batch = gradients_[push].batch;
  job_->Tell([&](Checker& checker) { checker.ComputationBegun(task_key_, batch, parameters_); });
  const float forward = job_->workload.Forward(batch, parameters_);
  waiting_ = Waiting::kTime;
  ReleasePart(push, work, forward, 0, result);
  return false;
}

// The backward pass: the last part of each table is ready first.
void SimTask::ReleasePart(worker::OpId push, const worker::Work& work, float forward, int step,
                          absl::StatusOr<worker::WorkResult>* result) {
  process_->After(ComputeStep(), [this, push, work, forward, step, result] {
    worker::PushPullCore::Actions actions;
    if (core_.IsRunning(push)) {
      Gradient& gradient = gradients_.at(push);
      std::vector<int64_t> begins;
      for (size_t t = 0; t < parameters_.size(); ++t) {
        const auto elements = static_cast<int64_t>(parameters_[t].size());
        const int64_t end = elements * (kReleaseSteps - step) / kReleaseSteps;
        begins.push_back(elements * (kReleaseSteps - step - 1) / kReleaseSteps);
        job_->workload.Backward(gradient.batch, forward, work.gradient_samples, parameters_,
                                static_cast<int>(t), begins[t], end, gradient.values.get());
      }
      core_.SetPayload(push, PayloadOf(gradient));
      for (size_t t = 0; t < begins.size(); ++t) {
        core_.Release(push, TableId(static_cast<int32_t>(t)), FirstReady(t, begins[t]),
                      process_->Now(), &actions);
      }
    }
    Perform(std::move(actions));
    if (step + 1 < kReleaseSteps) return ReleasePart(push, work, forward, step + 1, result);
    *result = ResultOf(work);
    Resume();
  });
}

// The first bucket of a sparse table of which everything from `element` on is ready; of a dense one
// the element itself.
int64_t SimTask::FirstReady(size_t table, int64_t element) const {
  const worker::AllTableKeys& keys = job_->workload.keys();
  if (table >= keys.size()) return element;
  const std::vector<int64_t>& begins = keys[table].batch->bucket_begin;
  const auto bucket = std::find_if(begins.begin(), begins.end(),
                                   [&](int64_t row) { return row * keys[table].dim >= element; });
  return bucket - begins.begin();
}

bool SimTask::Evaluate(const worker::Work& work, absl::StatusOr<worker::WorkResult>* result) {
  waiting_ = Waiting::kTime;
  const JobOptions& options = job_->options;
  const absl::Duration time = world_->prng.Between(options.compute_min, options.compute_max);
  process_->After(time, [this, work, result] {
    *result = EvaluationOf(job_->options, work);
    Resume();
  });
  return false;
}

bool SimTask::Export(const worker::Work& work, const std::map<TableId, Version>& versions,
                     absl::Status* result) {
  waiting_ = Waiting::kTime;
  if (!work.staged_path.empty()) return Move(work, result);
  const std::string& folder = work.export_path;
  TakeTime("bytes written", job_->options.export_max, [this, folder, versions, result] {
    JobWorld::Model model{task_key_, parameters_, versions};
    if (folder == job_->workload.job()->plan.export_path) {
      job_->ShowModel(std::move(model));
    } else {
      job_->models[folder] = std::move(model);
    }
    *result = absl::OkStatus();
    Resume();
  });
  return false;
}

bool SimTask::Move(const worker::Work& work, absl::Status* result) {
  TakeTime("bytes moved", world_->options.move_max, [this, staged = work.staged_path, result] {
    *result = job_->PublishModel(staged, task_key_);
    if (result->ok()) ++world_->reached[Reached::kModelMovedByTask];
    Resume();
  });
  return false;
}

}  // namespace capstan::sim
