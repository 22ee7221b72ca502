#include "scheduler/state/durable_state.h"

#include <grpcpp/support/server_callback.h>

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/observability/log.h"
#include "common/process/random_hex.h"
#include "common/security/capability.h"
#include "common/status/status_macros.h"
#include "scheduler/admission/admitted_codec.h"
#include "scheduler/store/state_codec.h"

namespace capstan::scheduler {
namespace {

constexpr absl::Duration kFaultPause = absl::Milliseconds(10);
constexpr absl::Duration kFaultLogPause = absl::Minutes(1);

// The answer is always kUnavailable, which means "ask again": the call may or may not have taken
// effect.
absl::Status NotDurable(const absl::Status& failure) {
  if (absl::IsUnavailable(failure)) return failure;
  return absl::UnavailableError(
      absl::StrCat("the scheduler cannot write its state: ", std::string(failure.message())));
}

// The first scheduler of a cluster counts incarnations from the calendar's milliseconds. If an
// earlier store was lost, tasks and files of the earlier cluster may be left, and their numbers
// must not occur again. The scheduler's own number is random, because calendars differ between
// hosts.
SchedulerCore::Options CountingFrom(absl::Time wall, SchedulerCore::Options options) {
  const int64_t unix_ms = std::max<int64_t>(0, absl::ToUnixMillis(wall));
  options.first_incarnation =
      std::max(options.first_incarnation, Incarnation(static_cast<uint64_t>(unix_ms)));
  while (!absl::SimpleHexAtoi(RandomHex(), &options.number) || options.number == 0) {
  }
  return options;
}

// Gives a capability key to each job of an older store, and returns the changed rows.
absl::StatusOr<std::vector<StoreWrite>> DrawMissingKeys(AdmittedJobs& jobs) {
  std::vector<StoreWrite> writes;
  for (auto& [id, job] : jobs) {
    if (job->capability_key.has_value()) continue;
    auto with_key = std::make_shared<AdmittedJob>(*job);
    CAPSTAN_ASSIGN_OR_RETURN(with_key->capability_key, CapabilityKey::Draw());
    writes.push_back(EncodeAdmitted(*with_key));
    job = std::move(with_key);
  }
  return writes;
}

}  // namespace

DurableState::DurableState(const Options& options, Store* store, const Clock* clock,
                           std::unique_ptr<SchedulerCore> core, AdmittedJobs jobs,
                           OrphanedLogs orphans)
    : hostname_(options.hostname),
      on_fatal_(options.on_fatal),
      on_forgotten_(options.on_forgotten),
      clock_(clock),
      calendar_(clock->Now(), absl::Now()),
      output_(kOutputsMax),
      commits_(store, [this](const absl::Status& failure) { OnCommitFailure(failure); }),
      core_(std::move(core)),
      jobs_(std::move(jobs)),
      orphans_(std::move(orphans)) {}

absl::StatusOr<std::unique_ptr<DurableState>> DurableState::Open(const Options& options,
                                                                 const StoreRows& rows,
                                                                 Store* store, const Clock* clock) {
  CAPSTAN_ASSIGN_OR_RETURN(AdmittedJobs jobs, DecodeAdmitted(rows));
  CAPSTAN_ASSIGN_OR_RETURN(std::vector<StoreWrite> upgraded, DrawMissingKeys(jobs));
  CAPSTAN_ASSIGN_OR_RETURN(OrphanedLogs orphans, OrphanedLogs::Load(rows));
  Actions actions;
  const Moment moment{clock->Now(), absl::Now()};
  CAPSTAN_ASSIGN_OR_RETURN(
      auto core, RestoreCore(rows, CountingFrom(moment.wall, options.core), moment, actions));
  for (const JobView& job : core->Jobs(moment.now)) {
    if (jobs.contains(job.id)) continue;
    return absl::DataLossError(absl::StrCat("the store has no specification of ", job.id));
  }
  std::unique_ptr<DurableState> state(new DurableState(options, store, clock, std::move(core),
                                                       std::move(jobs), std::move(orphans)));
  absl::MutexLock lock(&state->mutex_);
  state->restored_ = std::move(actions);
  state->upgraded_ = std::move(upgraded);
  return state;
}

DurableState::~DurableState() { Stop(); }

void DurableState::Start(std::function<void(FileWork)> post_file_work) {
  post_file_work_ = std::move(post_file_work);
  output_.Start();
  commits_.Start();
  {
    absl::MutexLock lock(&mutex_);
    CompleteFiles();
    Commit(std::exchange(restored_, {}), {}, std::exchange(upgraded_, {}));
  }
  timer_ = std::thread([this] { RunTimer(); });
}

void DurableState::EndCalls() {
  std::vector<HeldCall> calls;
  std::vector<grpc::ServerUnaryReactor*> connections;
  absl::Status stopped;
  {
    absl::MutexLock lock(&mutex_);
    stopped_ = true;
    stopped = Running();
    calls = calls_.TakeAll();
    connections = connections_.TakeAll();
    timer_changed_.Signal();
  }
  for (const HeldCall& call : calls) FinishWith(call.reactor, stopped);
  for (grpc::ServerUnaryReactor* connection : connections) FinishWith(connection, stopped);
  if (timer_.joinable()) timer_.join();
}

void DurableState::Stop() {
  EndCalls();
  commits_.Stop();
  output_.Stop();
}

absl::Status DurableState::Running() const {
  if (stopped_) return absl::UnavailableError("the scheduler is shutting down");
  return failure_.ok() ? absl::OkStatus() : NotDurable(failure_);
}

void DurableState::OnCommitFailure(const absl::Status& failure) {
  {
    absl::MutexLock lock(&mutex_);
    failure_ = failure;
  }
  if (on_fatal_) on_fatal_(failure);
}

// A scheduler may have died between the end of a job and the last write of its files. If several
// jobs wrote into one folder, it holds the files of the last one, so only those are completed.
void DurableState::CompleteFiles() {
  const std::vector<JobView> views = core_->Jobs(Now());
  std::map<std::string, JobId> last;
  for (const JobView& view : views) {
    if (view.started) last[jobs_.at(view.id)->plan.folders.output] = view.id;
  }
  for (const JobView& view : views) {
    if (!view.ended || !view.started) continue;
    if (last.at(jobs_.at(view.id)->plan.folders.output) != view.id) continue;
    output_.Post([this, job = jobs_.at(view.id), status = StatusOf(view, StatusDetail::kWhole)] {
      recorder_.Complete(*job, status);
    });
  }
}

// ---------------------------------------------------------------- steps

void DurableState::Hold(Ticket ticket, const HeldCall& call, const Ask& ask) {
  absl::Status status = Running();
  Actions actions;
  std::vector<CallAnswer> refusal;
  if (status.ok()) {
    calls_.Add(ticket, call);
    status = ask(*core_, actions);
  }
  if (!status.ok()) {
    calls_.Take(ticket);
    refusal.push_back({call.reactor, status});
  }
  Commit(std::move(actions), std::move(refusal));
}

void DurableState::Commit(Actions actions, std::vector<CallAnswer> answers,
                          std::vector<StoreWrite> also) {
  std::vector<StoreWrite> writes = EncodeChanges(*core_, actions.changes, {Now(), absl::Now()});
  for (const JobId& job : actions.changes.forgotten) writes.push_back(ForgetAdmitted(job));
  for (StoreWrite& write : also) writes.push_back(std::move(write));
  const auto results = std::make_shared<Results>();
  results->answers = std::move(answers);
  results->forgotten = actions.changes.forgotten;
  Collect(std::move(actions), *results);
  for (const JobId& job : results->forgotten) {
    jobs_.erase(job);
    records_.erase(job);
  }
  if (core_->NextDeadline() < timer_deadline_) timer_changed_.Signal();
  commits_.Push(std::move(writes),
                [this, results](const absl::Status& durable) { Perform(*results, durable); });
}

void DurableState::Perform(Results& results, const absl::Status& durable) {
  if (!durable.ok()) {
    const absl::Status refusal = NotDurable(durable);
    for (const CallAnswer& answer : results.answers) FinishWith(answer.reactor, refusal);
    return;
  }
  if (!results.events.empty()) {
    output_.Post([this, events = std::move(results.events)] {
      for (const RecordedEvent& event : events) recorder_.Record(event);
    });
  }
  if (on_forgotten_) {
    for (const JobId& job : results.forgotten) on_forgotten_(job);
  }
  post_file_work_(std::move(results.files));
  for (CallAnswer& answer : results.answers) {
    if (answer.status.ok() && answer.fill) answer.fill();
    if (answer.after_files) {
      output_.Post([reactor = answer.reactor, status = std::move(answer.status)] {
        FinishWith(reactor, status);
      });
    } else {
      FinishWith(answer.reactor, answer.status);
    }
  }
}

void DurableState::RunTimer() {
  absl::MutexLock lock(&mutex_);
  while (true) {
    while (!stopped_) {
      timer_deadline_ = core_->NextDeadline();
      const absl::Duration left = timer_deadline_ - Now();
      if (left <= absl::ZeroDuration()) break;
      timer_changed_.WaitWithTimeout(&mutex_, left);
    }
    if (stopped_) return;
    Actions actions;
    const Instant now = Now();
    core_->Tick(now, actions);
    Commit(std::move(actions));
    if (core_->NextDeadline() <= now) AwaitOthers(now);
  }
}

// A Tick that leaves its deadline in the past is a fault of the core. Without this pause, no call
// would ever get the mutex.
void DurableState::AwaitOthers(Instant now) {
  if (!fault_logged_ || now >= *fault_logged_ + kFaultLogPause) {
    LogError({}, "the scheduler's core leaves a deadline in the past: please report this");
    fault_logged_ = now;
  }
  timer_deadline_ = now;
  timer_changed_.WaitWithTimeout(&mutex_, kFaultPause);
}

}  // namespace capstan::scheduler
