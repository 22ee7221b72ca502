#include "worker/client/push_pull_client.h"

#include <grpcpp/generic/generic_stub.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/net/channel.h"
#include "common/net/cord_buffer.h"
#include "common/net/grpc_status.h"
#include "common/observability/log.h"
#include "common/status/status_macros.h"
#include "common/wire/tensor_message.h"

namespace capstan::worker {
namespace {

constexpr size_t kConnections = 2;  // For data, to each server.
constexpr char kPushMethod[] = "/capstan.v1.ParameterServer/Push";
constexpr char kPullMethod[] = "/capstan.v1.ParameterServer/Pull";

}  // namespace

struct PushPullClient::Peer {
  explicit Peer(const std::string& address) {
    for (std::unique_ptr<grpc::GenericStub>& stub : data) {
      stub = std::make_unique<grpc::GenericStub>(MakeChannel(address, ChannelKind::kData));
    }
    control = v1::ParameterServer::NewStub(MakeChannel(address, ChannelKind::kControl));
  }
  grpc::GenericStub& NextStub() { return *data[next.fetch_add(1) % data.size()]; }

  // gRPC serves a connection by one thread at a time.
  std::array<std::unique_ptr<grpc::GenericStub>, kConnections> data;
  std::atomic<size_t> next = 0;
  std::unique_ptr<v1::ParameterServer::Stub> control;
};

// One message in flight.
struct PushPullClient::Call {
  SendMessage message;
  std::shared_ptr<Peer> peer;
  grpc::ClientContext context;
  std::shared_ptr<const TableArrays> gradient;  // Push: lent to the request by the sender.
  grpc::ByteBuffer request;
  grpc::ByteBuffer response;
};

// A server is being asked for its routing table.
struct PushPullClient::Ask {
  std::shared_ptr<Peer> peer;
  grpc::ClientContext context;
  v1::GetRoutingRequest request;
  v1::GetRoutingResponse response;
};

namespace {

constexpr absl::Duration kLongOp = absl::Milliseconds(250);  // Worth a line in the log.

// What a failover costs is felt here: a line for whoever asks how long it took.
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
  }
  sender_.join();
  absl::MutexLock lock(&mutex_);
  for (const std::shared_ptr<Call>& call : queue_) calls_.erase(call);  // Never started.
  for (const std::shared_ptr<Ask>& ask : ask_queue_) asks_.erase(ask);
  for (const std::shared_ptr<Call>& call : calls_) call->context.TryCancel();
  for (const std::shared_ptr<Ask>& ask : asks_) ask->context.TryCancel();
  // A cancelled call ends at once.
  while (!calls_.empty() || !asks_.empty()) changed_.Wait(&mutex_);
}

absl::Status PushPullClient::SetRouting(const v1::RoutingTable& proto) {
  CAPSTAN_ASSIGN_OR_RETURN(const Routing routing, DecodeRouting(proto));
  std::vector<std::shared_ptr<Call>> calls;
  {
    absl::MutexLock lock(&mutex_);
    if (closing_ || routing.generation <= session_.routing_generation()) return absl::OkStatus();
    if (!routing_.shards.empty() && routing.shards.size() != routing_.shards.size()) {
      return absl::InvalidArgumentError(absl::StrCat("routing table: ", routing.shards.size(),
                                                     " shards, expected ", routing_.shards.size(),
                                                     " as before"));
    }
    peers_.clear();
    for (const v1::ServerAddress& server : proto.servers()) {
      auto& peer = peer_by_address_[server.address()];
      if (peer == nullptr) peer = std::make_shared<Peer>(server.address());
      peers_.push_back(peer);
    }
    routing_ = routing;
    SessionActions actions;
    session_.SetRouting(routing, clock_.Now(), &actions);
    for (const std::shared_ptr<Call>& call : calls_) {
      if (!session_.Expects(call->message.message)) call->context.TryCancel();
    }
    calls = TakeActionsLocked(actions);
    changed_.SignalAll();
  }
  StartCalls(calls);
  return absl::OkStatus();
}

absl::Status PushPullClient::CheckArrays(const TableArrays& arrays) const {
  for (const ShardRoute& shard : routing_.shards) {
    const auto table = static_cast<size_t>(shard.key.table.value());
    const int64_t held = table < arrays.size() ? static_cast<int64_t>(arrays[table].size()) : 0;
    if (held < shard.elements.end) {
      return absl::InvalidArgumentError(absl::StrCat("table ", table, " has ", held,
                                                     " elements here, expected at least ",
                                                     shard.elements.end));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<OpId> PushPullClient::StartOp(const OpRequest& request, Payload payload) {
  std::vector<std::shared_ptr<Call>> calls;
  OpId op;
  {
    absl::MutexLock lock(&mutex_);
    CAPSTAN_RETURN_IF_ERROR(
        CheckArrays(payload.gradient != nullptr ? *payload.gradient : *payload.destination));
    op = OpId(next_op_++);
    payloads_[op] = std::move(payload);
    SessionActions actions;
    const absl::Status started = session_.Start(op, request, clock_.Now(), &actions);
    if (!started.ok()) {
      payloads_.erase(op);
      return started;
    }
    calls = TakeActionsLocked(actions);
  }
  StartCalls(calls);
  return op;
}

absl::StatusOr<OpId> PushPullClient::Push(Iteration iteration, Range slots,
                                          std::shared_ptr<const TableArrays> gradient,
                                          PushStart start) {
  return StartOp({.kind = OpKind::kPush,
                  .iteration = iteration,
                  .slots = slots,
                  .held = start == PushStart::kHeld},
                 {.gradient = std::move(gradient)});
}

absl::StatusOr<OpId> PushPullClient::Pull(Iteration iteration, PullMode mode,
                                          TableArrays* destination) {
  return StartOp(
      {.kind = OpKind::kPull, .iteration = iteration, .snapshot = mode == PullMode::kSnapshot},
      {.gradient = nullptr, .destination = destination});
}

absl::StatusOr<OpResult> PushPullClient::Wait(OpId op) {
  for (;;) {
    std::vector<std::shared_ptr<Call>> calls;
    {
      absl::MutexLock lock(&mutex_);
      if (const auto ended = ended_.find(op); ended != ended_.end()) {
        const OpDone done = ended->second;
        ended_.erase(ended);
        if (done.status.code() == absl::StatusCode::kOutOfRange) oldest_ = done.oldest;
        if (!done.status.ok()) return done.status;
        return OpResult{.staleness = done.staleness, .versions = done.versions};
      }
      if (!payloads_.contains(op)) {
        return absl::NotFoundError(absl::StrCat("operation ", op.value(), " is not known"));
      }
      if (std::exchange(interrupted_, false)) return absl::CancelledError("interrupted");
      const absl::Duration until = session_.NextDeadline() - clock_.Now();
      if (until > absl::ZeroDuration()) {
        changed_.WaitWithTimeout(&mutex_, until);
        continue;
      }
      SessionActions actions;
      session_.Tick(clock_.Now(), &actions);
      calls = TakeActionsLocked(actions);
    }
    StartCalls(calls);
  }
}

void PushPullClient::Release(OpId op, TableId table, int64_t first) {
  absl::MutexLock lock(&mutex_);
  SessionActions actions;
  session_.Release(op, table, first, clock_.Now(), &actions);
  // Whoever computes the gradient has better things to do than to start calls.
  for (std::shared_ptr<Call>& call : TakeActionsLocked(actions)) queue_.push_back(std::move(call));
}

Iteration PushPullClient::OldestIteration() const {
  absl::MutexLock lock(&mutex_);
  return oldest_;
}

void PushPullClient::CancelPull(OpId op) {
  std::vector<std::shared_ptr<Call>> calls;
  {
    absl::MutexLock lock(&mutex_);
    SessionActions actions;
    session_.CancelPull(op, clock_.Now(), &actions);
    payloads_.erase(op);
    ended_.erase(op);
    for (const std::shared_ptr<Call>& call : calls_) {
      if (call->message.op == op) call->context.TryCancel();
    }
    calls = TakeActionsLocked(actions);
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
  return session_.CurrentWait();
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
      queue_.push_back(std::move(call));
    } else {
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

std::shared_ptr<PushPullClient::Call> PushPullClient::MakeCallLocked(const SendMessage& message) {
  auto call = std::make_shared<Call>();
  call->message = message;
  call->peer = peers_[static_cast<size_t>(message.server)];
  SetDeadline(call->context, options_.call_timeout);
  if (message.request.kind == OpKind::kPush) {
    call->gradient = payloads_.at(message.op).gradient;
  } else {
    v1::PullRequest pull;
    EncodePull(caller_, message, options_.pull_wait_limit, &pull, options_.formats);
    call->request = ToByteBuffer(absl::Cord(pull.SerializeAsString()));
  }
  calls_.insert(call);
  return call;
}

void PushPullClient::AskLocked(int server) {
  auto ask = std::make_shared<Ask>();
  ask->peer = peers_[static_cast<size_t>(server)];
  ask->request.set_job_id(options_.job);
  SetDeadline(ask->context, options_.ask_timeout);
  asks_.insert(ask);
  ask_queue_.push_back(std::move(ask));
}

void PushPullClient::OnAskDone(const std::shared_ptr<Ask>& ask, const absl::Status& status) {
  // A table that cannot be is as good as none: the next server is asked soon.
  if (status.ok() && ask->response.routing().job_id() == options_.job) {
    SetRouting(ask->response.routing()).IgnoreError();
  }
  absl::MutexLock lock(&mutex_);
  asks_.erase(ask);
  changed_.SignalAll();
}

bool PushPullClient::NextQueued(std::shared_ptr<Call>* call, std::shared_ptr<Ask>* ask) {
  absl::MutexLock lock(&mutex_);
  auto ready = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return closing_ || !queue_.empty() || !ask_queue_.empty();
  };
  mutex_.Await(absl::Condition(&ready));
  if (closing_) return false;
  if (!ask_queue_.empty()) {
    *ask = std::move(ask_queue_.front());
    ask_queue_.pop_front();
    return true;
  }
  *call = std::move(queue_.front());
  queue_.pop_front();
  if (!session_.Expects((*call)->message.message)) {  // The routing table has changed meanwhile.
    calls_.erase(*call);
    call->reset();
  }
  return true;
}

void PushPullClient::SendQueued() {
  std::shared_ptr<Call> call;
  std::shared_ptr<Ask> ask;
  for (; NextQueued(&call, &ask); call.reset(), ask.reset()) {
    if (ask != nullptr) {
      ask->peer->control->async()->GetRouting(
          &ask->context, &ask->request, &ask->response,
          [this, ask](const grpc::Status& status) { OnAskDone(ask, FromGrpcStatus(status)); });
    }
    if (call == nullptr) continue;
    if (call->gradient != nullptr) {
      call->request = ToByteBuffer(
          Encode(EncodePush(caller_, call->message, call->gradient, options_.formats)));
    }
    call->gradient.reset();
    StartCalls({call});
  }
}

void PushPullClient::StartCalls(const std::vector<std::shared_ptr<Call>>& calls) {
  for (const std::shared_ptr<Call>& call : calls) {
    const bool push = call->message.request.kind == OpKind::kPush;
    call->peer->NextStub().UnaryCall(
        &call->context, push ? kPushMethod : kPullMethod, {}, &call->request, &call->response,
        [this, call](const grpc::Status& status) { OnCallDone(call, FromGrpcStatus(status)); });
  }
}

void PushPullClient::OnCallDone(const std::shared_ptr<Call>& call, const absl::Status& status) {
  std::vector<std::shared_ptr<Call>> calls;
  {
    absl::MutexLock lock(&mutex_);
    if (!closing_ && session_.Expects(call->message.message)) {
      absl::StatusOr<DecodedReply> reply = DecodedReply();
      if (status.ok()) reply = ReadLocked(*call);
      const absl::Status outcome = status.ok() ? reply.status() : status;
      if (!reply.ok()) reply = DecodedReply();
      SessionActions actions;
      session_.OnReply(call->message.message, outcome, reply->shards, reply->waiting, clock_.Now(),
                       &actions);
      calls = TakeActionsLocked(actions);
    }
    calls_.erase(call);
    changed_.SignalAll();  // A new back-off deadline, the end of an operation, or of the last call.
  }
  StartCalls(calls);
}

absl::StatusOr<DecodedReply> PushPullClient::ReadLocked(const Call& call) {
  const absl::Cord bytes = ToCord(call.response);
  if (call.message.request.kind == OpKind::kPush) {
    v1::PushResponse response;
    if (!response.ParseFromString(std::string(bytes))) {
      return absl::InternalError("answered what is no PushResponse");
    }
    return DecodePush(call.message, response);
  }
  CAPSTAN_ASSIGN_OR_RETURN(const PullAnswer answer, DecodePullAnswer(bytes));
  return DecodePull(call.message, answer, payloads_.at(call.message.op).destination);
}

}  // namespace capstan::worker
