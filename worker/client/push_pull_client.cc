#include "worker/client/push_pull_client.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/observability/log.h"
#include "common/shared_memory/shared_values.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "worker/client/push_pull_call.h"

namespace capstan::worker {
namespace {

int64_t BucketsOf(const TableKeys& keys) { return std::ssize(keys.batch->bucket_begin) - 1; }

// Checks the keys of a table that has `shards` shards and whose array has `elements` elements.
absl::Status CheckRows(const TableKeys& keys, int64_t shards, int64_t elements) {
  if (BucketsOf(keys) != shards) {
    return absl::InvalidArgumentError(
        absl::StrCat("keys are cut for ", BucketsOf(keys), " buckets, expected ", shards));
  }
  const int64_t rows = keys.batch->size();
  if (elements == rows * keys.dim) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("has ", elements, " elements here, expected ",
                                                 rows * keys.dim, " = ", rows, " keys of ",
                                                 keys.dim));
}

constexpr absl::Duration kLongOp = absl::Milliseconds(250);  // Longer ones are logged.

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
      session_(options.session),
      sender_([this] { SendQueued(); }) {}

PushPullClient::~PushPullClient() {
  {
    absl::MutexLock lock(&mutex_);
    closing_ = true;
    EndUseLocked();
  }
  sender_.join();
  absl::btree_map<std::string, std::shared_ptr<ServerPeer>> peers;
  {
    absl::MutexLock lock(&mutex_);
    for (Calls* calls : {&placed_, &pushes_, &pulls_}) {  // These were never started.
      for (const std::shared_ptr<Call>& call : *calls) calls_.erase(call);
      calls->clear();
    }
    for (const std::shared_ptr<Ask>& ask : ask_queue_) asks_.erase(ask);
    ask_queue_.clear();
    for (const std::shared_ptr<Call>& call : calls_) call->transfer.Cancel();
    for (const std::shared_ptr<Ask>& ask : asks_) ask->context.TryCancel();
    // A cancelled call ends at once.
    while (!calls_.empty() || !asks_.empty()) changed_.Wait(&mutex_);
    peers = std::move(peer_by_address_);
  }
  tracker_.WaitUntilGone();
  for (const auto& [address, peer] : peers) {
    peer->lane().Close();  // It does not call on_change any more.
    peer->data_lane().Close();
  }
}

absl::Status PushPullClient::SetRouting(const v1::RoutingTable& proto) {
  CAPSTAN_ASSIGN_OR_RETURN(Routing routing, DecodeRouting(proto));
  for (ShardRoute& shard : routing.shards) {
    const auto table = static_cast<size_t>(shard.key.table.value());
    if (table < options_.bucket_bytes.size()) shard.message_bytes = options_.bucket_bytes[table];
  }
  std::vector<std::shared_ptr<Call>> calls;
  {
    absl::MutexLock lock(&mutex_);
    if (closing_ || routing.generation <= session_.routing_generation()) return absl::OkStatus();
    if (!routing_.shards.empty() && routing.shards.size() != routing_.shards.size()) {
      return absl::InvalidArgumentError(absl::StrCat("routing table: ", routing.shards.size(),
                                                     " shards, expected ", routing_.shards.size(),
                                                     " as before"));
    }
    ++rerouting_;
    CancelReadersLocked(std::nullopt);
    AwaitReadersLocked([&] { return readers_.empty(); });
    --rerouting_;
    changed_.SignalAll();
    if (closing_ || routing.generation <= session_.routing_generation()) return absl::OkStatus();
    routing_ = routing;
    peers_ = PeersLocked(proto);
    SessionActions actions;
    session_.SetRouting(routing, clock_.Now(), &actions);
    for (const std::shared_ptr<Call>& call : calls_) {
      if (!session_.Expects(call->message.message)) call->transfer.Cancel();
    }
    calls = TakeActionsLocked(actions);
    changed_.SignalAll();
  }
  StartCalls(calls);
  return absl::OkStatus();
}

std::vector<std::shared_ptr<ServerPeer>> PushPullClient::PeersLocked(
    const v1::RoutingTable& routing) {
  std::vector<std::shared_ptr<ServerPeer>> peers;
  for (const v1::ServerAddress& server : routing.servers()) {
    auto& peer = peer_by_address_[server.address()];
    if (peer == nullptr) {
      // The sender's wait condition is evaluated whenever the mutex is released.
      peer = std::make_shared<ServerPeer>(server.address(), &clock_, options_.data_connections,
                                          [this] { absl::MutexLock lock(&mutex_); });
    }
    peers.push_back(peer);
  }
  std::vector<int64_t> bytes(peers.size());
  for (const ShardRoute& shard : routing_.shards) {
    bytes[static_cast<size_t>(shard.server)] += RoomBytes({MessageBytes(shard)});
  }
  absl::btree_map<ServerPeer*, int64_t> sizes;
  for (const auto& [address, peer] : peer_by_address_) sizes[peer.get()] = 0;
  for (size_t i = 0; i < peers.size(); ++i) sizes[peers[i].get()] += 2 * bytes[i];
  for (const auto& [peer, size] : sizes) {
    peer->lane().SetSize(std::min(size, options_.shared_memory_bytes));
  }
  return peers;
}

absl::Status PushPullClient::CheckArrays(const OpRequest& request, const Payload& payload) const {
  const AllTableKeys& keys = *payload.keys;
  const bool push = payload.gradient != nullptr;
  const TableArrays& arrays = push ? *payload.gradient : *payload.destination.floats;
  const HalfArrays* const halves =
      push ? payload.gradient_halves.get() : payload.destination.halves;
  const auto held = [&](size_t table) {
    const SendMessage::Shard any = {.key = {TableId(static_cast<int>(table)), ShardId(0)}};
    if (IsHalf({.request = request, .shards = {}}, any, options_.formats, halves)) {
      return std::ssize((*halves)[table]);
    }
    return table < arrays.size() ? std::ssize(arrays[table]) : 0;
  };
  std::vector<int64_t> shards(keys.size());
  for (const ShardRoute& shard : routing_.shards) {
    const auto table = static_cast<size_t>(shard.key.table.value());
    const bool sparse = table < keys.size() && keys[table].batch != nullptr;
    if (sparse) ++shards[table];
    const int64_t elements = sparse ? BucketsOf(keys[table]) : held(table);
    if (elements >= shard.elements.end) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("table ", table, " has ", elements, sparse ? " buckets" : " elements",
                     " here, expected at least ", shard.elements.end));
  }
  for (size_t table = 0; table < keys.size(); ++table) {
    if (keys[table].batch == nullptr) continue;
    CAPSTAN_RETURN_IF_ERROR(Annotate(CheckRows(keys[table], shards[table], held(table)),
                                     absl::StrCat("table ", table)));
  }
  return absl::OkStatus();
}

absl::StatusOr<OpId> PushPullClient::StartOp(const OpRequest& request, Payload payload) {
  std::vector<std::shared_ptr<Call>> calls;
  OpId op;
  {
    absl::MutexLock lock(&mutex_);
    CAPSTAN_RETURN_IF_ERROR(CheckArrays(request, payload));
    op = OpId(next_op_++);
    payloads_[op] = std::move(payload);
    SessionActions actions;
    const absl::Status started = session_.Start(op, request, clock_.Now(), &actions);
    if (!started.ok()) {
      payloads_.erase(op);
      return started;
    }
    const bool idle = !sending_ && pushes_.empty();
    calls = TakeActionsLocked(actions);
    if (idle && !request.held) TakeSmallPushesLocked(&calls);
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

void PushPullClient::WaitUntil(Watch watch, const std::function<bool()>& over) {
  for (;;) {
    std::vector<std::shared_ptr<Call>> calls;
    {
      absl::MutexLock lock(&mutex_);
      if (over()) return;
      const absl::Duration until = session_.NextDeadline() - clock_.Now();
      if (until > absl::ZeroDuration()) {
        const int watching = watch == Watch::kMessages ? 1 : 0;
        watchers_ += watching;
        changed_.WaitWithTimeout(&mutex_, until);
        watchers_ -= watching;
        continue;
      }
      SessionActions actions;
      session_.Tick(clock_.Now(), &actions);
      calls = TakeActionsLocked(actions);
    }
    StartCalls(calls);
  }
}

absl::StatusOr<OpResult> PushPullClient::Wait(OpId op) {
  absl::StatusOr<OpResult> result;
  WaitUntil(Watch::kEnds, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (op == used_) EndUseLocked();
    if (const auto ended = ended_.find(op); ended != ended_.end()) {
      if (readers_.contains(op)) {  // It has failed, but a call still reads for it.
        CancelReadersLocked(op);
        return false;
      }
      OpDone& done = ended->second;
      if (done.status.code() == absl::StatusCode::kOutOfRange) oldest_ = done.oldest;
      result = done.status.ok()
                   ? absl::StatusOr<OpResult>(OpResult{.reread = done.reread,
                                                       .staleness = done.staleness,
                                                       .membership = done.membership,
                                                       .versions = std::move(done.versions)})
                   : done.status;
      ended_.erase(ended);
      return true;
    }
    if (!payloads_.contains(op)) {
      result = absl::NotFoundError(absl::StrCat("operation ", op.value(), " is not known"));
      return true;
    }
    if (!std::exchange(interrupted_, false)) return false;
    result = absl::CancelledError("interrupted");
    return true;
  });
  return result;
}

bool PushPullClient::WaitFor(OpId op, TableId table, int64_t end) {
  bool arrived = false;
  WaitUntil(Watch::kMessages, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    EndUseLocked();
    if (const auto ended = ended_.find(op); ended != ended_.end()) {
      arrived = ended->second.status.ok() && !ended->second.reread;
      return true;
    }
    const PullProgress progress = session_.ProgressOf(op, table);
    if (progress.reread || !payloads_.contains(op)) return true;
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
  SessionActions actions;
  session_.Release(op, table, first, clock_.Now(), &actions);
  // The sender starts the calls: this thread computes the gradient.
  for (std::shared_ptr<Call>& call : TakeActionsLocked(actions)) placed_.push_back(std::move(call));
}

Iteration PushPullClient::OldestIteration() const {
  absl::MutexLock lock(&mutex_);
  return oldest_;
}

void PushPullClient::CancelPull(OpId op) {
  std::vector<std::shared_ptr<Call>> calls;
  {
    absl::MutexLock lock(&mutex_);
    if (op == used_) EndUseLocked();
    SessionActions actions;
    session_.CancelPull(op, clock_.Now(), &actions);
    for (const std::shared_ptr<Call>& call : calls_) {
      if (call->message.op == op) call->transfer.Cancel();
    }
    calls = TakeActionsLocked(actions);
    // The session does not expect these messages any more, so it forgets the values being read.
    AwaitReadersLocked([&] { return !readers_.contains(op); });
    payloads_.erase(op);
    ended_.erase(op);
  }
  StartCalls(calls);
}

void PushPullClient::Interrupt() {
  absl::MutexLock lock(&mutex_);
  interrupted_ = true;
  changed_.SignalAll();
}

SessionWait PushPullClient::CurrentWait() const {
  absl::MutexLock lock(&mutex_);
  return session_.CurrentWait(clock_.Now());
}

PathCounts PushPullClient::counts() const {
  absl::MutexLock lock(&mutex_);
  PathCounts counts = counts_;
  counts.data_messages = data_messages_;
  counts.straight_messages = straight_messages_;
  return counts;
}

Generation PushPullClient::routing_generation() const {
  absl::MutexLock lock(&mutex_);
  return session_.routing_generation();
}

bool PushPullClient::needs_routing() const {
  absl::MutexLock lock(&mutex_);
  return session_.needs_routing();
}

std::vector<std::shared_ptr<PushPullClient::Call>> PushPullClient::TakeActionsLocked(
    SessionActions& actions) {
  std::vector<std::shared_ptr<Call>> calls;
  if (closing_) return calls;
  for (const SendMessage& message : actions.send) {
    std::shared_ptr<Call> call = MakeCallLocked(message);
    if (message.request.kind == OpKind::kPush) {
      QueuePushLocked(std::move(call));
    } else if (!pulls_.empty() || MustWaitLocked(*call)) {
      pulls_.push_back(std::move(call));
    } else {
      PlaceLocked(*call);
      calls.push_back(std::move(call));
    }
  }
  for (OpDone& done : actions.done) {
    payloads_.erase(done.op);
    TellOfLongOp(done, clock_.Now() - done.started);
    ended_[done.op] = std::move(done);
  }
  for (const int server : actions.ask_routing) AskLocked(server);
  if (!actions.done.empty()) changed_.SignalAll();
  return calls;
}

}  // namespace capstan::worker
