#include "worker/client/push_pull_client.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/observability/log.h"
#include "common/status/status_macros.h"

namespace capstan::worker {
namespace {

constexpr absl::Duration kLongOp = absl::Milliseconds(250);  // Longer ones are logged.

std::shared_ptr<const AllTableKeys> KeysOfOne(TableId table, TableKeys keys) {
  auto all = std::make_shared<AllTableKeys>();
  if (keys.batch != nullptr) {
    all->resize(static_cast<size_t>(table.value()) + 1);
    all->back() = std::move(keys);
  }
  return all;
}

// Logs how long an operation took that a failover delayed.
void TellOfLongOp(const OpDone& done, absl::Duration took) {
  if (!done.status.ok() || !done.repeated || took < kLongOp) return;
  LogInfo({.iteration = done.request.iteration.value()}, "{} after {} ms",
          done.request.kind == OpKind::kPush ? "push acknowledged" : "pull answered",
          absl::ToInt64Milliseconds(took));
}

}  // namespace

PushPullClient::PushPullClient(const Options& options, const Clock& clock)
    : options_(options),
      caller_{.job = options.job, .rank = options.rank, .incarnation = options.incarnation},
      clock_(clock),
      core_(CoreOptions()),
      sender_([this] { SendQueued(); }) {}

PushPullCore::Options PushPullClient::CoreOptions() {
  return {.session = options_.session,
          .bucket_bytes = options_.bucket_bytes,
          .formats = options_.formats,
          .push_bytes_max = options_.push_bytes_max,
          .shared_memory_bytes = options_.shared_memory_bytes,
          .key_lists = options_.key_lists,
          .make_transport = [this](const std::string& node, const std::string& address)
                                ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
                                  return MakeTransportLocked(node, address);
                                }};
}

std::shared_ptr<Transport> PushPullClient::MakeTransportLocked(const std::string& node,
                                                               const std::string& address) {
  transports_.push_back(std::make_shared<ServerTransport>(ServerTransport::Options{
      .node = node,
      .address = address,
      .clock = &clock_,
      .credentials = options_.credentials,
      .data_connections = options_.data_connections,
      // The sender's wait condition is evaluated whenever the mutex is released.
      .on_change = [this] { absl::MutexLock lock(&mutex_); },
      .capability = options_.capability}));
  return transports_.back();
}

PushPullClient::~PushPullClient() {
  {
    absl::MutexLock lock(&mutex_);
    closing_ = true;
    EndUseLocked();
  }
  sender_.join();
  std::vector<std::shared_ptr<ServerTransport>> transports;
  {
    absl::MutexLock lock(&mutex_);
    core_.queue().Clear();
    for (const std::shared_ptr<ClientCall>& call : core_.queue().calls()) call->transfer->Cancel();
    // A cancelled call ends at once.
    while (!core_.queue().calls().empty()) changed_.Wait(&mutex_);
    transports = transports_;
  }
  for (const std::shared_ptr<ServerTransport>& transport : transports) transport->Close();
}

absl::Status PushPullClient::SetRouting(const v1::RoutingTable& proto) {
  CAPSTAN_ASSIGN_OR_RETURN(Routing routing, DecodeRouting(proto));
  Calls calls;
  {
    absl::MutexLock lock(&mutex_);
    if (closing_) return absl::OkStatus();
    CAPSTAN_ASSIGN_OR_RETURN(bool newer, core_.IsNewer(routing));
    if (!newer) return absl::OkStatus();
    ++rerouting_;
    core_.CancelReaders();
    AwaitReadersLocked(std::nullopt);
    --rerouting_;
    changed_.SignalAll();
    CAPSTAN_ASSIGN_OR_RETURN(newer, core_.IsNewer(routing));
    if (closing_ || !newer) return absl::OkStatus();
    PushPullCore::Actions actions;
    core_.SetRouting(std::move(routing), clock_.Now(), &actions);
    calls = TakeActionsLocked(std::move(actions));
    changed_.SignalAll();
  }
  StartCalls(calls);
  return absl::OkStatus();
}

absl::StatusOr<OpId> PushPullClient::StartOp(const OpRequest& request, OpPayload payload) {
  Calls calls;
  OpId op;
  {
    absl::MutexLock lock(&mutex_);
    const bool idle = !sending_ && !core_.queue().HasPushes();
    PushPullCore::Actions actions;
    CAPSTAN_ASSIGN_OR_RETURN(op, core_.Start(request, std::move(payload), clock_.Now(), &actions));
    calls = TakeActionsLocked(std::move(actions));
    // A change of threads costs as much as a small push.
    if (idle && !request.held) {
      for (std::shared_ptr<ClientCall>& call : core_.queue().TakeSmallPushes()) {
        calls.push_back(std::move(call));
      }
    }
  }
  // A pull sends values only as keys of sparse tables; no thread waits while they fill a socket.
  StartCalls(calls, request.kind == OpKind::kPush ? kSendPatience : absl::ZeroDuration());
  return op;
}

absl::StatusOr<OpId> PushPullClient::Push(Iteration iteration, Range slots,
                                          std::shared_ptr<const TableArrays> gradient,
                                          PushStart start, AllTableKeys keys,
                                          std::shared_ptr<const HalfArrays> halves) {
  return StartOp({.kind = OpKind::kPush,
                  .iteration = iteration,
                  .slots = slots,
                  .held = start == PushStart::kHeld},
                 {.gradient = std::move(gradient),
                  .gradient_halves = std::move(halves),
                  .keys = std::make_shared<const AllTableKeys>(std::move(keys))});
}

absl::StatusOr<OpId> PushPullClient::Pull(Iteration iteration, PullMode mode,
                                          PullArrays destination, AllTableKeys keys) {
  return StartOp(
      {.kind = OpKind::kPull, .iteration = iteration, .snapshot = mode == PullMode::kSnapshot},
      {.gradient = nullptr,
       .gradient_halves = nullptr,
       .destination = destination,
       .keys = std::make_shared<const AllTableKeys>(std::move(keys))});
}

absl::StatusOr<OpId> PushPullClient::PushTable(TableId table, Iteration iteration,
                                               absl::Span<const float> values,
                                               std::shared_ptr<const void> owner, TableKeys keys) {
  return StartOp({.kind = OpKind::kPush, .iteration = iteration, .table = table},
                 {.gradient = PushArrays(table, values, std::move(owner)),
                  .gradient_halves = nullptr,
                  .keys = KeysOfOne(table, std::move(keys))});
}

absl::StatusOr<OpId> PushPullClient::PullTable(TableId table, Iteration iteration,
                                               absl::Span<float> values, TableKeys keys) {
  return StartOp({.kind = OpKind::kPull, .iteration = iteration, .table = table},
                 {.gradient = nullptr,
                  .gradient_halves = nullptr,
                  .destination = PullArrays(table, values),
                  .keys = KeysOfOne(table, std::move(keys))});
}

void PushPullClient::RunUntil(Watch watch, const std::function<bool()>& over, Instant deadline) {
  for (;;) {
    Calls calls;
    {
      absl::MutexLock lock(&mutex_);
      if (over() || clock_.Now() >= deadline) return;
      const Instant due = core_.session().NextDeadline();
      const absl::Duration until = std::min(due, deadline) - clock_.Now();
      if (until > absl::ZeroDuration()) {
        const int watching = watch == Watch::kMessages ? 1 : 0;
        watchers_ += watching;
        changed_.WaitWithTimeout(&mutex_, until);
        watchers_ -= watching;
        continue;
      }
      if (clock_.Now() < due) continue;
      PushPullCore::Actions actions;
      core_.Tick(clock_.Now(), &actions);
      calls = TakeActionsLocked(std::move(actions));
    }
    StartCalls(calls);
  }
}

bool PushPullClient::TakeResultLocked(OpId op, absl::StatusOr<OpResult>* result) {
  if (op == used_) EndUseLocked();
  if (core_.FindEnded(op) == nullptr) {
    if (core_.IsRunning(op)) return false;
    *result = absl::NotFoundError(absl::StrCat("operation ", op.value(), " is not known"));
    return true;
  }
  if (core_.IsRead(op)) {  // It has failed, but a call still reads for it.
    core_.CancelReaders(op);
    return false;
  }
  OpDone done = core_.TakeEnded(op);
  if (done.status.code() == absl::StatusCode::kOutOfRange) oldest_ = done.oldest;
  *result = done.status.ok()
                ? absl::StatusOr<OpResult>(OpResult{.reread = done.reread,
                                                    .staleness = done.staleness,
                                                    .membership = done.membership,
                                                    .versions = std::move(done.versions)})
                : done.status;
  return true;
}

absl::StatusOr<OpResult> PushPullClient::Wait(OpId op) {
  absl::StatusOr<OpResult> result;
  RunUntil(Watch::kEnds, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (TakeResultLocked(op, &result)) return true;
    if (core_.FindEnded(op) != nullptr || !std::exchange(interrupted_, false)) return false;
    result = absl::CancelledError("interrupted");
    return true;
  });
  return result;
}

std::optional<absl::StatusOr<OpResult>> PushPullClient::WaitUntil(OpId op, Instant deadline) {
  absl::StatusOr<OpResult> result;
  bool taken = false;
  RunUntil(
      Watch::kEnds,
      [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        taken = TakeResultLocked(op, &result);
        return taken || waits_end_;
      },
      deadline);
  if (!taken) return std::nullopt;
  return result;
}

void PushPullClient::EndWaits(bool end) {
  absl::MutexLock lock(&mutex_);
  waits_end_ = end;
  changed_.SignalAll();
}

void PushPullClient::AttendOperations(Attend until) {
  for (;;) {
    Calls calls;
    {
      absl::MutexLock lock(&mutex_);
      attend_ = until;
      const bool due = AwaitDueLocked();
      attend_.reset();
      if (!due) return;
      PushPullCore::Actions actions;
      core_.Tick(clock_.Now(), &actions);
      calls = TakeActionsLocked(std::move(actions));
    }
    StartCalls(calls);
  }
}

bool PushPullClient::AwaitDueLocked() {
  for (;;) {
    if (std::exchange(interrupted_, false) || MayLeaveIdleLocked()) return false;
    attended_until_ = core_.session().NextDeadline();
    const absl::Duration left = attended_until_ - clock_.Now();
    if (left <= absl::ZeroDuration()) return true;
    attendant_.WaitWithTimeout(&mutex_, left);
  }
}

bool PushPullClient::MayLeaveIdleLocked() const {
  return attend_ == Attend::kUntilIdle && !core_.AnyIsRunning();
}

// Waking it for each operation would cost as much as a small message.
void PushPullClient::WakeAttendantLocked() {
  if (!attend_) return;
  if (MayLeaveIdleLocked() || core_.session().NextDeadline() < attended_until_) {
    attendant_.Signal();
  }
}

bool PushPullClient::WaitFor(OpId op, TableId table, int64_t end) {
  bool arrived = false;
  RunUntil(Watch::kMessages, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    EndUseLocked();
    if (const OpDone* const ended = core_.FindEnded(op); ended != nullptr) {
      arrived = ended->status.ok() && !ended->reread;
      return true;
    }
    const PullProgress progress = core_.session().ProgressOf(op, table);
    if (progress.reread || !core_.IsRunning(op)) return true;
    arrived = progress.arrived_end >= end;
    if (arrived) used_ = op;
    return arrived || interrupted_;
  });
  return arrived;
}

void PushPullClient::EndUseLocked() {
  if (used_ == OpId(0)) return;
  used_ = OpId(0);
  changed_.SignalAll();
}

void PushPullClient::Release(OpId op, TableId table, int64_t first) {
  absl::MutexLock lock(&mutex_);
  PushPullCore::Actions actions;
  core_.Release(op, table, first, clock_.Now(), &actions);
  // The sender starts the calls: this thread computes the gradient.
  for (std::shared_ptr<ClientCall>& call : TakeActionsLocked(std::move(actions))) {
    core_.queue().AddPlaced(std::move(call));
  }
}

Iteration PushPullClient::OldestIteration() const {
  absl::MutexLock lock(&mutex_);
  return oldest_;
}

void PushPullClient::CancelPull(OpId op) {
  Calls calls;
  {
    absl::MutexLock lock(&mutex_);
    if (op == used_) EndUseLocked();
    PushPullCore::Actions actions;
    core_.CancelPull(op, clock_.Now(), &actions);
    calls = TakeActionsLocked(std::move(actions));
    // The session does not expect these messages any more, so it forgets the values being read.
    AwaitReadersLocked(op);
  }
  StartCalls(calls);
}

void PushPullClient::Interrupt() {
  absl::MutexLock lock(&mutex_);
  interrupted_ = true;
  changed_.SignalAll();
  attendant_.Signal();
}

SessionWait PushPullClient::CurrentWait() const {
  absl::MutexLock lock(&mutex_);
  return core_.session().CurrentWait(clock_.Now());
}

std::string PushPullClient::TextOf(OpId op) const {
  absl::MutexLock lock(&mutex_);
  return core_.IsRunning(op) ? core_.session().TextOf(op, clock_.Now()) : "";
}

bool PushPullClient::IsIdle() const {
  absl::MutexLock lock(&mutex_);
  return !core_.AnyIsRunning();
}

MessageCounts PushPullClient::counts() const {
  absl::MutexLock lock(&mutex_);
  return {.messages = core_.queue().messages(),
          .shared_messages = core_.queue().shared_messages(),
          .data_messages = data_messages_,
          .straight_messages = straight_messages_,
          .named_lists = core_.named_lists(),
          .unknown_lists = core_.unknown_lists()};
}

Generation PushPullClient::routing_generation() const {
  absl::MutexLock lock(&mutex_);
  return core_.session().routing_generation();
}

bool PushPullClient::needs_routing() const {
  absl::MutexLock lock(&mutex_);
  return core_.session().needs_routing();
}

PushPullClient::Calls PushPullClient::TakeActionsLocked(PushPullCore::Actions actions) {
  for (const OpId op : actions.ended) {
    const OpDone& done = *core_.FindEnded(op);
    TellOfLongOp(done, clock_.Now() - done.started);
  }
  if (!actions.ended.empty()) changed_.SignalAll();
  WakeAttendantLocked();
  return std::move(actions.start);
}

}  // namespace capstan::worker
