#include "worker/client/push_pull_client.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/net/channel.h"
#include "common/net/grpc_status.h"
#include "common/status/status_macros.h"

namespace capstan::worker {

// One message in flight.
struct PushPullClient::Call {
  SendMessage message;
  std::shared_ptr<v1::ParameterServer::Stub> stub;
  grpc::ClientContext context;
  std::shared_ptr<const TableArrays> gradient;  // Push: copied into the request by the sender.
  v1::PushRequest push;
  v1::PushResponse push_response;
  v1::PullRequest pull;
  v1::PullResponse pull_response;
};

namespace {

Routing FromProto(const v1::RoutingTable& proto) {
  Routing routing;
  routing.generation = Generation(proto.generation());
  for (const v1::ShardRoute& shard : proto.shards()) {
    routing.shards.push_back({.key = {TableId(shard.table()), ShardId(shard.shard())},
                              .elements = {shard.element_begin(), shard.element_end()},
                              .server = shard.server()});
  }
  for (const v1::ServerAddress& server : proto.servers()) {
    routing.servers.push_back(absl::StrCat(server.node_id(), " (", server.address(), ")"));
  }
  return routing;
}

absl::Status CheckRouting(const v1::RoutingTable& routing) {
  for (const v1::ShardRoute& shard : routing.shards()) {
    if (shard.server() < 0 || shard.server() >= routing.servers_size()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "routing table: shard ", shard.shard(), " of table ", shard.table(), " names server ",
          shard.server(), ", expected 0 to ", routing.servers_size() - 1));
    }
    if (shard.table() < 0 || shard.element_begin() < 0 ||
        shard.element_end() < shard.element_begin()) {
      return absl::InvalidArgumentError(
          absl::StrCat("routing table: shard ", shard.shard(), " of table ", shard.table(),
                       " has the range [", shard.element_begin(), ", ", shard.element_end(), ")"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

PushPullClient::PushPullClient(const Options& options, const Clock& clock)
    : options_(options),
      clock_(clock),
      session_(options.session),
      sender_([this] { SendPushes(); }) {}

PushPullClient::~PushPullClient() {
  {
    absl::MutexLock lock(&mutex_);
    closing_ = true;
  }
  sender_.join();
  absl::MutexLock lock(&mutex_);
  for (const std::shared_ptr<Call>& call : pushes_) calls_.erase(call);  // Never started.
  for (const std::shared_ptr<Call>& call : calls_) call->context.TryCancel();
  while (!calls_.empty()) changed_.Wait(&mutex_);  // A cancelled call ends at once.
}

absl::Status PushPullClient::SetRouting(const v1::RoutingTable& proto) {
  CAPSTAN_RETURN_IF_ERROR(CheckRouting(proto));
  const Routing routing = FromProto(proto);
  std::vector<std::shared_ptr<Call>> calls;
  {
    absl::MutexLock lock(&mutex_);
    if (routing.generation <= session_.routing_generation()) return absl::OkStatus();
    stubs_.clear();
    for (const v1::ServerAddress& server : proto.servers()) {
      auto& stub = stub_by_address_[server.address()];
      if (stub == nullptr) {
        stub = v1::ParameterServer::NewStub(MakeChannel(server.address(), ChannelKind::kData));
      }
      stubs_.push_back(stub);
    }
    routing_ = routing;
    needs_routing_ = false;
    SessionActions actions;
    session_.SetRouting(routing, clock_.Now(), &actions);
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
  std::vector<std::shared_ptr<Call>> calls;
  {
    absl::MutexLock lock(&mutex_);
    SessionActions actions;
    session_.Release(op, table, first, clock_.Now(), &actions);
    calls = TakeActionsLocked(actions);
  }
  StartCalls(calls);
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
  return needs_routing_;
}

std::vector<std::shared_ptr<PushPullClient::Call>> PushPullClient::TakeActionsLocked(
    SessionActions& actions) {
  std::vector<std::shared_ptr<Call>> calls;
  if (closing_) return calls;
  for (const SendMessage& message : actions.send) {
    std::shared_ptr<Call> call = MakeCallLocked(message);
    if (message.request.kind == OpKind::kPush) {
      pushes_.push_back(std::move(call));
    } else {
      calls.push_back(std::move(call));
    }
  }
  for (OpDone& done : actions.done) {
    payloads_.erase(done.op);
    ended_[done.op] = std::move(done);
  }
  needs_routing_ = needs_routing_ || actions.need_routing;
  if (!actions.done.empty()) changed_.SignalAll();
  return calls;
}

std::shared_ptr<PushPullClient::Call> PushPullClient::MakeCallLocked(const SendMessage& message) {
  auto call = std::make_shared<Call>();
  call->message = message;
  call->stub = stubs_[static_cast<size_t>(message.server)];
  SetDeadline(call->context, options_.call_timeout);
  if (message.request.kind == OpKind::kPush) {
    call->gradient = payloads_.at(message.op).gradient;
  } else {
    FillPull(message, call->pull);
  }
  calls_.insert(call);
  return call;
}

void PushPullClient::SendPushes() {
  for (;;) {
    std::shared_ptr<Call> call;
    {
      absl::MutexLock lock(&mutex_);
      auto ready = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        return closing_ || !pushes_.empty();
      };
      mutex_.Await(absl::Condition(&ready));
      if (closing_) return;
      call = std::move(pushes_.front());
      pushes_.pop_front();
    }
    FillPush(call->message, *call->gradient, call->push);
    call->gradient.reset();
    StartCalls({call});
  }
}

void PushPullClient::FillCaller(const SendMessage& message, v1::Caller& caller) const {
  caller.set_job_id(options_.job);
  caller.set_rank(options_.rank.value());
  caller.set_incarnation(options_.incarnation.value());
  caller.set_routing_generation(message.generation.value());
}

void PushPullClient::FillPush(const SendMessage& message, const TableArrays& gradient,
                              v1::PushRequest& request) const {
  FillCaller(message, *request.mutable_caller());
  request.set_iteration(message.request.iteration.value());
  request.set_slot_begin(static_cast<int32_t>(message.request.slots.begin));
  request.set_slot_end(static_cast<int32_t>(message.request.slots.end));
  for (const SendMessage::Shard& shard : message.shards) {
    v1::ShardPush* push = request.add_shards();
    push->set_table(shard.key.table.value());
    push->set_shard(shard.key.shard.value());
    push->set_sequence(shard.sequence.value());
    push->set_sequence_low_water(shard.sequence_low_water.value());
    push->set_value_type(v1::FLOAT32);
    const float* values =
        gradient[static_cast<size_t>(shard.key.table.value())].data() + shard.elements.begin;
    push->set_values(values, static_cast<size_t>(shard.elements.size()) * sizeof(float));
  }
}

void PushPullClient::FillPull(const SendMessage& message, v1::PullRequest& request) const {
  FillCaller(message, *request.mutable_caller());
  request.set_iteration(message.request.iteration.value());
  request.set_snapshot(message.request.snapshot);
  request.set_wait_limit_ms(
      static_cast<int32_t>(absl::ToInt64Milliseconds(options_.pull_wait_limit)));
  for (const SendMessage::Shard& shard : message.shards) {
    v1::ShardPull* pull = request.add_shards();
    pull->set_table(shard.key.table.value());
    pull->set_shard(shard.key.shard.value());
    pull->set_held_version(shard.held_version);
  }
}

void PushPullClient::StartCalls(const std::vector<std::shared_ptr<Call>>& calls) {
  for (const std::shared_ptr<Call>& call : calls) {
    auto done = [this, call](const grpc::Status& status) {
      OnCallDone(call, FromGrpcStatus(status));
    };
    if (call->message.request.kind == OpKind::kPush) {
      call->stub->async()->Push(&call->context, &call->push, &call->push_response, std::move(done));
    } else {
      call->stub->async()->Pull(&call->context, &call->pull, &call->pull_response, std::move(done));
    }
  }
}

void PushPullClient::OnCallDone(const std::shared_ptr<Call>& call, const absl::Status& status) {
  std::vector<std::shared_ptr<Call>> calls;
  {
    absl::MutexLock lock(&mutex_);
    if (!closing_ && session_.Expects(call->message.message)) {
      std::vector<ShardReply> replies;
      std::vector<Waiting> waiting;
      absl::Status outcome = status;
      if (outcome.ok()) {
        outcome = call->message.request.kind == OpKind::kPush ? ReadPush(*call, &replies)
                                                              : ReadPull(*call, &replies, &waiting);
      }
      SessionActions actions;
      session_.OnReply(call->message.message, outcome, replies, waiting, clock_.Now(), &actions);
      calls = TakeActionsLocked(actions);
    }
    calls_.erase(call);
    changed_.SignalAll();  // A new back-off deadline, the end of an operation, or of the last call.
  }
  StartCalls(calls);
}

absl::Status PushPullClient::ReadPush(const Call& call, std::vector<ShardReply>* replies) const {
  for (const v1::ShardPushResult& result : call.push_response.shards()) {
    replies->push_back({.version = Version(result.version())});
  }
  return absl::OkStatus();
}

absl::Status PushPullClient::ReadPull(const Call& call, std::vector<ShardReply>* replies,
                                      std::vector<Waiting>* waiting) {
  const auto& shards = call.message.shards;
  if (call.pull_response.shards_size() != static_cast<int>(shards.size())) return absl::OkStatus();
  TableArrays& destination = *payloads_.at(call.message.op).destination;
  for (size_t i = 0; i < shards.size(); ++i) {
    const v1::ShardValues& values = call.pull_response.shards(static_cast<int>(i));
    ShardReply reply{.version = Version(values.version()), .staleness = values.staleness()};
    if (values.outcome() == v1::ShardValues::NOT_READY) {
      reply.outcome = ShardReply::Outcome::kNotReady;
    } else if (values.outcome() == v1::ShardValues::PAST) {
      reply.outcome = ShardReply::Outcome::kPast;
    } else if (values.outcome() == v1::ShardValues::VALUES) {
      const size_t expected = static_cast<size_t>(shards[i].elements.size()) * sizeof(float);
      if (values.values().size() != expected) {
        return absl::InternalError(absl::StrCat("shard ", shards[i].key.shard.value(),
                                                " came with ", values.values().size(),
                                                " bytes, expected ", expected));
      }
      float* to = destination[static_cast<size_t>(shards[i].key.table.value())].data() +
                  shards[i].elements.begin;
      std::memcpy(to, values.values().data(), expected);
    } else if (values.outcome() != v1::ShardValues::UNCHANGED) {
      return absl::InternalError(absl::StrCat("shard ", shards[i].key.shard.value(),
                                              " came with outcome ",
                                              static_cast<int>(values.outcome())));
    }
    replies->push_back(reply);
  }
  for (const v1::WaitingFor& w : call.pull_response.waiting_for()) {
    waiting->push_back({.shard = {TableId(w.table()), ShardId(w.shard())},
                        .iteration = Iteration(w.iteration()),
                        .ranks = {w.ranks().begin(), w.ranks().end()},
                        .slots = {w.slots().begin(), w.slots().end()}});
  }
  return absl::OkStatus();
}

}  // namespace capstan::worker
