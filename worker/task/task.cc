#include "worker/task/task.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/job/spec/program_tables.h"
#include "common/model/tables.h"
#include "common/observability/log.h"
#include "common/row_export/export_rows.h"
#include "common/row_export/grpc_row_source.h"
#include "common/status/status_macros.h"
#include "common/tensor/model_file.h"
#include "common/tensor/safetensors/durable_file.h"
#include "common/tensor/staged_model.h"
#include "common/types/staging.h"
#include "worker/task/computation/task_options.h"
#include "worker/task/model_place.h"
#include "worker/task/task_messages.h"

namespace capstan::worker {
namespace {

// Shorter waits for parameters are not traced.
constexpr absl::Duration kWaitShown = absl::Microseconds(20);

PushPullClient::MessageObserver MessageObserver(TaskTrace* trace) {
  if (trace == nullptr) return nullptr;
  return [trace](const SendMessage& message, Instant begin, Instant end) {
    trace->Message(message, begin, end);
  };
}

std::unique_ptr<CallHistory> HistoryOf(const v1::TaskAssignment& assignment, const Clock& clock) {
  auto history = CallHistory::OfEnvironment(assignment.job_id(), Rank(assignment.rank()),
                                            Incarnation(assignment.incarnation()), clock);
  if (history.ok()) return *std::move(history);
  LogError({.job = assignment.job_id()}, "{}", std::string(history.status().message()));
  return nullptr;
}

}  // namespace

Task::Task(const v1::TaskAssignment& assignment, const std::string& scheduler,
           const Credentials* credentials, const std::string& folder, MakeComputation make,
           const Clock& clock)
    : assignment_(assignment),
      credentials_(credentials),
      folder_(folder),
      make_computation_(std::move(make)),
      clock_(clock),
      capability_(assignment.capability()),
      trace_(TaskTrace::Create(assignment, clock)),
      history_(HistoryOf(assignment, clock)),
      recorder_(UpdateRecorder::Create(assignment)),
      client_({.job = assignment.job_id(),
               .rank = Rank(assignment.rank()),
               .incarnation = Incarnation(assignment.incarnation()),
               .session = SessionOptions(assignment.spec(), assignment.gpus_size() > 0),
               .bucket_bytes = BucketBytes(assignment.spec()),
               .formats = WireFormats(assignment.spec()),
               .shared_memory_bytes = SharedMemoryBytes(assignment.spec()),
               .data_connections = assignment.spec().wire().data_connections() != v1::OFF,
               .credentials = credentials,
               .capability = [this] { return capability_.Get(); },
               .on_message = MessageObserver(trace_.get()),
               .history = history_.get()},
              clock),
      scheduler_disk_({.scheduler = scheduler, .credentials = credentials}),
      board_(BoardOptions(assignment.spec())),
      link_({.scheduler = scheduler, .credentials = credentials},
            {.report = [this] { return Report(); },
             .receive = [this](const v1::SyncTaskResponse& response) { Receive(response); },
             .fenced =
                 [this](const absl::Status& status) {
                   LogWarning({.job = assignment_.job_id()}, "told to stop: {}",
                              std::string(status.message()));
                   absl::MutexLock lock(&mutex_);
                   fenced_ = true;
                   client_.Interrupt();
                   scheduler_disk_.Stop();
                 }}) {}

int Task::Run() {
  link_.Start();
  absl::Status status = Loop();
  link_.Stop();
  if (trace_ != nullptr) trace_->Write();
  {
    absl::MutexLock lock(&mutex_);
    if (fenced_) return 0;
    const bool done = board_.assignment().phase == Phase::kFinish;
    if (status.ok() && !done) status = gave_up_;
  }
  if (!status.ok()) {
    LogError({.job = assignment_.job_id()}, "{}", std::string(status.message()));
    absl::MutexLock lock(&mutex_);
    failure_ = FailureOf(status, failed_at_);
  }
  // The last report has the totals of the last batches, or the reason why the task gives up.
  const absl::Status told = link_.ReportOnce(Report());
  if (status.ok()) return 0;
  return told.ok() ? 1 : 3;
}

void Task::GiveUp(const absl::Status& why) {
  absl::MutexLock lock(&mutex_);
  gave_up_.Update(why);
  client_.Interrupt();
  scheduler_disk_.Stop();
}

absl::Status Task::Loop() {
  CAPSTAN_RETURN_IF_ERROR(Prepare());
  TaskLoop loop({.acknowledgement = AcknowledgementOf(assignment_.spec()),
                 .keyed = HasRows(assignment_.spec()),
                 .early_pulls = EarlyPulls(assignment_.spec(), assignment_.gpus_size() > 0),
                 .own_pace = assignment_.spec().program().own_pace()},
                *this);
  loop.Start();
  if (const std::string kept = computation_->Kept(); !kept.empty()) {
    LogInfo({.job = assignment_.job_id()}, "kept {}", kept);
  }
  return loop.outcome();
}

absl::Status Task::Prepare() {
  const std::vector<int> gpus(assignment_.gpus().begin(), assignment_.gpus().end());
  absl::StatusOr<std::shared_ptr<Computation>> made =
      make_computation_(assignment_.spec(), gpus, activity_.listener(), trace_.get());
  activity_.End();
  NoteComputed(made.status());
  CAPSTAN_ASSIGN_OR_RETURN(computation_, std::move(made));
  if (assignment_.spec().program().own_pace()) {
    tables_ =
        std::make_shared<TableOperations>(&client_, computation_->tables(), activity_.listener());
  }
  {
    absl::MutexLock lock(&mutex_);
    board_.SetTrainSamples(computation_->train_samples());
    prepared_ = true;
  }
  link_.Wake();  // The scheduler may have work for the task now.
  LogInfo({.job = assignment_.job_id()}, "ready: {} training samples",
          computation_->train_samples());
  return absl::OkStatus();
}

void Task::NoteComputed(const absl::Status& status) {
  if (!status.ok() && assignment_.gpus_size() > 0) failed_at_ = FailedAt::kComputingOnGpu;
}

void Task::UseBoard(const std::function<void(TaskBoard&)>& use) {
  absl::MutexLock lock(&mutex_);
  use(board_);
}

bool Task::Fenced() {
  absl::MutexLock lock(&mutex_);
  return fenced_ || !gave_up_.ok();  // Either ends the loop.
}

void Task::ReportSoon() { link_.Wake(); }

bool Task::HasRouting() { return client_.routing_generation().value() != 0; }

absl::StatusOr<OpId> Task::Push(const Work& work) {
  gradient_ = FreeGradient();
  AllTableKeys keys = computation_->BeginTraining(work, &parameters_, gradient_.get());
  if (recorder_ != nullptr) gradient_keys_ = keys;
  // Both pointers share ownership of the whole gradient.
  const std::shared_ptr<const TableArrays> floats(gradient_, &gradient_->floats);
  const std::shared_ptr<const HalfArrays> halves(gradient_, &gradient_->halves);
  return client_.Push(work.iteration, work.slots, floats, PushStart::kHeld, std::move(keys),
                      halves);
}

absl::StatusOr<OpId> Task::Pull(const Work& work, bool snapshot) {
  CAPSTAN_ASSIGN_OR_RETURN(AllTableKeys keys,
                           computation_->BeginPull(work, Upcoming(), &parameters_));
  return client_.Pull(work.iteration, snapshot ? PullMode::kSnapshot : PullMode::kTrain,
                      {&parameters_, computation_->half_parameters()}, std::move(keys));
}

std::vector<Work> Task::Upcoming() {
  std::vector<Work> upcoming;
  const int count = computation_->batches_planned();
  UseBoard([&upcoming, count](TaskBoard& board) { upcoming = board.Upcoming(count); });
  return upcoming;
}

void Task::CancelPull(OpId op) { client_.CancelPull(op); }

RowsRead Task::Pulled(const OpDone& done) {
  if (recorder_ != nullptr) recorder_->Pulled(parameters_, computation_->half_parameters());
  return computation_->Pulled(done, parameters_);
}

bool Task::Wait(OpId op, OpDone* done) {
  const Instant begin = clock_.Now();
  absl::StatusOr<OpResult> result = client_.Wait(op);
  if (trace_ != nullptr) trace_->Waited("servers", begin, clock_.Now());
  *done = {.op = op, .status = result.status()};
  if (result.ok()) {
    done->reread = result->reread;
    done->staleness = result->staleness;
    done->membership = result->membership;
    done->versions = std::move(result->versions);
  } else if (absl::IsOutOfRange(result.status())) {
    done->oldest = client_.OldestIteration();
  }
  return true;
}

bool Task::Forward(const Work& work, std::optional<OpId> pull, OpDone* done) {
  const std::vector<Work> upcoming = Upcoming();
  const auto forward = [&](const ParametersNeeded& needed) {
    return computation_->Forward(work, upcoming, parameters_, needed);
  };
  bool begun = false;
  if (pull.has_value()) {
    begun = forward([this, pull](int64_t end) { return WaitForParameters(*pull, end); });
    Wait(*pull, done);
    if (!done->status.ok()) return true;
  }
  if (!begun || done->reread) forward(nullptr);
  return true;
}

bool Task::WaitForParameters(OpId pull, int64_t end) {
  const Instant begin = clock_.Now();
  const bool arrived = client_.WaitFor(pull, TableId(kParametersTable), end);
  if (trace_ != nullptr && clock_.Now() - begin >= kWaitShown) {
    trace_->Waited(absl::StrCat("parameters up to ", end), begin, clock_.Now());
  }
  return arrived;
}

bool Task::WaitForWork() {
  absl::MutexLock lock(&mutex_);
  auto something = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return fenced_ || !gave_up_.ok() || TaskLoop::HasWork(board_, HasRouting());
  };
  // The link reports while this waits; the scheduler's leases bound the wait.
  mutex_.Await(absl::Condition(&something));
  return true;
}

bool Task::Train(const Work& work, OpId push, absl::StatusOr<WorkResult>* result) {
  // Only the pool and the push hold the gradient from now on.
  const std::shared_ptr<GradientArrays> gradient = std::exchange(gradient_, nullptr);
  *result = computation_->Train(work, gradient.get(), [this, push](int64_t first) {
    client_.Release(push, TableId(kParametersTable), first);
  });
  NoteComputed(result->status());
  if (!result->ok()) return true;
  if (trace_ != nullptr) trace_->BatchDone();
  for (const v1::TableSpec& table : computation_->tables()) {
    client_.Release(push, TableId(table.table()), 0);
  }
  if (recorder_ != nullptr) recorder_->Trained(work, *gradient, gradient_keys_);
  return true;
}

bool Task::RunProgram(const Work& work, absl::StatusOr<WorkResult>* result) {
  tables_->Open();
  computation_->BeginRun(work, tables_, [this] { client_.Interrupt(); });
  *result = AttendRun(work);
  computation_->EndRun();
  tables_->End();
  activity_.End();
  return true;
}

absl::StatusOr<WorkResult> Task::AttendRun(const Work& work) {
  for (;;) {
    if (const auto result = computation_->RunResult()) {
      if (!result->ok()) return *result;
      CAPSTAN_RETURN_IF_ERROR(DrainRun());
      CAPSTAN_RETURN_IF_ERROR(tables_->Drain());
      return *result;
    }
    const RunState state = StateOfRun(work);
    if (state == RunState::kTakenAway) {
      CAPSTAN_RETURN_IF_ERROR(DrainRun());
      return absl::CancelledError("the run was taken away");
    }
    tables_->SetPaused(state == RunState::kPaused);
    if (state == RunState::kPaused) {
      Rest();
    } else {
      client_.AttendOperations(PushPullClient::Attend::kUntilInterrupted);
    }
  }
}

Task::RunState Task::StateOfRun(const Work& work) {
  absl::MutexLock lock(&mutex_);
  const Assignment& now = board_.assignment();
  const bool held = now.phase == Phase::kTrain &&
                    std::any_of(now.samples.begin(), now.samples.end(),
                                [&work](const auto& lease) { return lease.lease == work.lease; });
  if (fenced_ || !held) return RunState::kTakenAway;
  return now.paused ? RunState::kPaused : RunState::kGoesOn;
}

void Task::Rest() {
  if (!tables_->IsIdle()) return tables_->AwaitIdle();
  UseBoard([](TaskBoard& board) {
    if (board.assignment().paused) board.SetResting();
  });
  link_.Wake();
  client_.AttendOperations(PushPullClient::Attend::kUntilInterrupted);
}

absl::Status Task::DrainRun() {
  tables_->Close();
  while (!tables_->IsIdle()) {
    if (Fenced()) return absl::CancelledError("this task has been fenced off");
    tables_->AwaitIdle();
  }
  return absl::OkStatus();
}

std::shared_ptr<GradientArrays> Task::FreeGradient() {
  for (const std::shared_ptr<GradientArrays>& gradient : gradients_) {
    if (gradient.use_count() == 1) return gradient;
  }
  gradients_.push_back(std::make_shared<GradientArrays>());
  return gradients_.back();
}

bool Task::Evaluate(const Work& work, absl::StatusOr<WorkResult>* result) {
  *result = computation_->Evaluate(work, parameters_);
  NoteComputed(result->status());
  return true;
}

bool Task::Export(const Work& work, const std::map<TableId, Version>& versions,
                  absl::Status* result) {
  *result = work.staged_path.empty() ? StageModel(work, versions) : MoveModel(work);
  activity_.End();
  if (!result->ok()) failed_at_ = FailedAt::kWritingModel;
  if (result->ok()) {
    LogInfo({.job = assignment_.job_id()}, "wrote the model to {}", work.export_path);
  }
  // Otherwise nothing would remove it.
  const bool staged = work.staged_path.empty();
  if (staged && (!result->ok() || Fenced())) RemoveStagedModel(work.export_path);
  return true;
}

absl::Status Task::StageModel(const Work& work, const std::map<TableId, Version>& versions) {
  if (Fenced()) return absl::AbortedError("this task has been fenced off");
  const std::string scratch = absl::StrCat(folder_, "/", kStagedModelPrefix, assignment_.rank(),
                                           "-", assignment_.incarnation());
  return worker::StageModel(scheduler_disk_, work.export_path, scratch, activity_.listener(),
                            [&](const std::string& path) { return WriteModel(path, versions); });
}

absl::Status Task::MoveModel(const Work& work) {
  if (Fenced()) return absl::AbortedError("this task has been fenced off");
  CAPSTAN_RETURN_IF_ERROR(MakeDirectories(work.export_path));
  return PublishModel(work.staged_path, work.export_path, assignment_.job_id(),
                      Incarnation(assignment_.incarnation()));
}

absl::Status Task::WriteModel(const std::string& folder,
                              const std::map<TableId, Version>& versions) {
  std::vector<TableValues> dense;
  std::vector<TableRows> sparse;
  for (const v1::TableSpec& spec : computation_->tables()) {
    if (spec.has_sparse()) {
      CAPSTAN_ASSIGN_OR_RETURN(TableRows rows, WriteRows(folder, spec));
      sparse.push_back(rows);
      continue;
    }
    dense.push_back({.spec = &spec,
                     .version = versions.at(TableId(spec.table())).value(),
                     .values = parameters_[static_cast<size_t>(spec.table())]});
  }
  return WriteModelFiles(folder, assignment_.job_id(), assignment_.spec(), dense, sparse,
                         /*since_folder=*/"", activity_.listener(),
                         Incarnation(assignment_.incarnation()));
}

// Reads the servers' current rows: no task pushes any more.
absl::StatusOr<TableRows> Task::WriteRows(const std::string& folder, const v1::TableSpec& table) {
  TableScan::Options options;
  options.caller.set_job_id(assignment_.job_id());
  options.caller.set_rank(assignment_.rank());
  options.caller.set_incarnation(assignment_.incarnation());
  GrpcRowSource source({.newest_routing = [this] { return NewestRouting(); },
                        .credentials = credentials_,
                        .capability = [this] { return capability_.Get(); }});
  CAPSTAN_ASSIGN_OR_RETURN(const v1::RoutingTable routing, NewestRouting());
  return ExportRows(options, table, routing, folder, clock_, source, /*earlier=*/nullptr,
                    activity_.listener());
}

absl::StatusOr<v1::RoutingTable> Task::NewestRouting() {
  absl::MutexLock lock(&mutex_);
  if (fenced_) return absl::AbortedError("this task has been fenced off");
  return routing_;
}

v1::SyncTaskRequest Task::Report() {
  const uint64_t routing_seen = client_.needs_routing() ? 0 : client_.routing_generation().value();
  const SessionWait wait = client_.CurrentWait();
  absl::MutexLock lock(&mutex_);
  v1::SyncTaskRequest request = MakeReport(assignment_, board_, prepared_, revision_seen_);
  // A server may have sent the client a newer table, which routing_ needs, too (exports).
  request.set_routing_seen(std::min(routing_seen, routing_.generation()));
  if (wait.waiting) *request.mutable_wait() = WaitToProto(wait, clock_.Now());
  request.set_capability_expiry_unix_s(capability_.ExpiryUnixSeconds());
  activity_.AddTo(request);
  if (failure_.has_value()) *request.mutable_failure() = *failure_;
  if (recorder_ != nullptr && !recorder_->AddTo(request)) request.set_idle(false);
  return request;
}

void Task::Receive(const v1::SyncTaskResponse& response) {
  if (recorder_ != nullptr) recorder_->Reported();
  if (!response.capability().empty()) capability_.Set(response.capability());
  if (response.has_routing()) {
    {
      absl::MutexLock lock(&mutex_);  // Set first: the loop goes on when the client has the table.
      routing_ = response.routing();
    }
    if (const absl::Status status = client_.SetRouting(response.routing()); !status.ok()) {
      LogError({.job = assignment_.job_id()}, "{}", std::string(status.message()));
    }
  }
  absl::MutexLock lock(&mutex_);
  revision_seen_ = response.revision();
  if (!response.has_assignment()) return;
  const absl::StatusOr<Assignment> assignment = AssignmentFromProto(response.assignment());
  if (!assignment.ok()) {
    LogError({.job = assignment_.job_id()}, "{}", std::string(assignment.status().message()));
    return;
  }
  if (history_ != nullptr && assignment->generation > board_.assignment().generation) {
    history_->Assigned(assignment->phase == Phase::kTrain, assignment->start_iteration);
  }
  if (board_.Take(*assignment)) client_.Interrupt();
}

}  // namespace capstan::worker
