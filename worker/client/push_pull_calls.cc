// PushPullClient starts its calls and reads their answers.
#include <algorithm>
#include <numeric>
#include <string>
#include <utility>
#include <variant>

#include "common/net/channel.h"
#include "common/net/frame.h"
#include "common/net/grpc_status.h"
#include "common/shared_memory/shared_values.h"
#include "common/status/status_macros.h"
#include "common/wire/tensor_message.h"
#include "worker/client/pull_places.h"
#include "worker/client/push_pull_call.h"
#include "worker/client/push_pull_client.h"

namespace capstan::worker {
namespace {

// True if a call that ended here with this status may still run at the server.
bool MayStillRun(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kInternal:
    case absl::StatusCode::kUnknown:
      return true;
    default:
      return false;
  }
}

// The values of a message with room in shared memory lie there.
std::variant<PushMessage, v1::PullRequest> PutInRoom(
    const MessageRoom& room, const std::vector<int64_t>& sizes,
    std::variant<PushMessage, v1::PullRequest> message) {
  if (auto* const push = std::get_if<PushMessage>(&message)) {
    PutValues(room, push);
  } else {
    NameRoom(room, sizes, &std::get<v1::PullRequest>(message));
  }
  return message;
}

}  // namespace

void PushPullClient::AskRouting(const CallQueue::Question& question) {
  auto ask = tracker_.Make<Ask>();
  ask->server = question.server;
  ask->peer = question.peer;
  ask->request.set_job_id(options_.job);
  SetDeadline(ask->context, options_.ask_timeout);
  {
    absl::MutexLock lock(&mutex_);
    asks_.insert(ask);
  }
  static_cast<ServerPeer&>(*ask->peer)
      .control()
      .async()
      ->GetRouting(
          &ask->context, &ask->request, &ask->response,
          [this, ask](const grpc::Status& status) { OnAskDone(ask, FromGrpcStatus(status)); });
}

void PushPullClient::OnAskDone(const std::shared_ptr<Ask>& ask, const absl::Status& status) {
  // An invalid table counts as none: the next server is asked soon.
  if (status.ok() && ask->response.routing().job_id() == options_.job) {
    SetRouting(ask->response.routing()).IgnoreError();
  }
  absl::MutexLock lock(&mutex_);
  if (IsAnswer(status)) core_.Heard(ask->server, clock_.Now());
  asks_.erase(ask);
  changed_.SignalAll();
}

bool PushPullClient::NextQueued(CallQueue::Task* task) {
  *task = {};
  absl::MutexLock lock(&mutex_);
  sending_ = false;
  auto any = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return closing_ || !core_.queue().empty();
  };
  mutex_.Await(absl::Condition(&any));
  auto ready = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return closing_ || core_.queue().IsReady();
  };
  const bool in_time = mutex_.AwaitWithTimeout(absl::Condition(&ready), options_.push_patience);
  if (closing_) return false;
  if (in_time) {
    *task = core_.queue().Take();
  } else if (core_.queue().HasPushes()) {
    task->call = core_.queue().TakeLatePush();
  }
  sending_ = in_time || task->call != nullptr;
  return true;
}

void PushPullClient::SendQueued() {
  for (CallQueue::Task task; NextQueued(&task);) {
    if (task.question.has_value()) AskRouting(*task.question);
    if (task.offer != nullptr) static_cast<ServerPeer&>(*task.offer).Offer(clock_.Now());
    if (task.call != nullptr) StartCalls({task.call}, kSendPatience);
  }
}

std::shared_ptr<PayloadPlaces> PushPullClient::PlacesOf(const std::shared_ptr<Call>& call) {
  const bool large = std::any_of(call->sizes.begin(), call->sizes.end(),
                                 [](int64_t bytes) { return bytes >= PullPlaces::kBytesMin; });
  if (call->is_push() || call->lease || !large) return nullptr;
  const PullArrays destination = call->payload.destination;
  return std::make_shared<PullPlaces>(
      PullPlaces::PartsOf(call->message, options_.formats, *call->payload.keys, destination.halves),
      [this, call, destination]() -> PullArrays {
        if (!BeginRead(*call)) return nullptr;
        straight_messages_.fetch_add(1, std::memory_order_relaxed);
        return destination;
      });
}

void PushPullClient::StartCalls(const Calls& calls, absl::Duration patience) {
  for (const std::shared_ptr<ClientCall>& call : calls) {
    StartCall(std::static_pointer_cast<Call>(call), patience);
  }
}

void PushPullClient::StartCall(const std::shared_ptr<Call>& call, absl::Duration patience) {
  if (options_.on_message != nullptr) call->started = clock_.Now();
  if (options_.history != nullptr) options_.history->Begun(call->message);
  ServerPeer& server = call->server();
  if (!call->lease) {
    call->under_way = std::accumulate(call->sizes.begin(), call->sizes.end(), int64_t{0});
  }
  const int64_t under_way = server.under_way().fetch_add(call->under_way) + call->under_way;
  auto message = call->Encode(caller_, options_.formats, options_.pull_wait_limit);
  if (call->lease) message = PutInRoom(call->lease.room(), call->sizes, std::move(message));
  const bool data = call->transfer.Start(
      server.data_pool().For(call->is_push() ? DataMethod::kPush : DataMethod::kPull),
      server.NextData(),
      {.message = std::move(message),
       .timeout = options_.call_timeout,
       .patience = patience,
       .places = PlacesOf(call),
       .grpc_timeout = options_.call_timeout + absl::Seconds(under_way / kSlowestBytesASecond)},
      [this, call](absl::StatusOr<ClientCall::Answer> answer) {
        OnCallDone(call, std::move(answer));
      });
  if (data) data_messages_.fetch_add(1, std::memory_order_relaxed);
}

bool PushPullClient::BeginRead(Call& call) {
  absl::MutexLock lock(&mutex_);
  // Values in use must not be written: the values of a shard that is read again have to wait.
  const auto used = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return call.message.op == used_ && core_.session().ProgressOf(used_, TableId(0)).reread;
  };
  while (rerouting_ > 0 || used()) changed_.Wait(&mutex_);
  if (closing_ || !core_.IsExpected(call)) return false;
  core_.BeginRead(call);
  return true;
}

void PushPullClient::AwaitReadersLocked(std::optional<OpId> op) {
  ++watchers_;
  while (core_.IsRead(op)) changed_.Wait(&mutex_);
  --watchers_;
}

void PushPullClient::OnCallDone(const std::shared_ptr<Call>& call,
                                absl::StatusOr<ClientCall::Answer> answer) {
  const absl::Status status = answer.status();
  absl::StatusOr<DecodedReply> reply = DecodedReply();
  const bool read = call->reading || (status.ok() && BeginRead(*call));
  if (read && status.ok()) {
    absl::Status taken;
    if (call->lease && !call->is_push()) {
      taken = TakeValues(call->lease.room().segment, &std::get<PullAnswer>(*answer));
    }
    reply = taken.ok() ? call->Decode(*answer, options_.formats) : taken;
  }
  if (options_.on_message != nullptr) {
    options_.on_message(call->message, call->started, clock_.Now());
  }
  // The history notes every acknowledged push, but only pulls that the session still expected.
  const bool noted = options_.history != nullptr && status.ok() && reply.ok();
  if (noted && call->is_push()) options_.history->Answered(call->message, reply->shards);
  const auto [accepted, calls] = EndCall(call, status, reply);
  if (noted && !call->is_push() && accepted) {
    options_.history->Answered(call->message, reply->shards);
  }
  StartCalls(calls);
}

std::pair<bool, PushPullClient::Calls> PushPullClient::EndCall(
    const std::shared_ptr<Call>& call, const absl::Status& status,
    const absl::StatusOr<DecodedReply>& reply) {
  absl::MutexLock lock(&mutex_);
  call->server().under_way() -= call->under_way;
  if (MayStillRun(status)) call->lease.Abandon();
  call->lease.GiveBack();
  if (closing_) {
    core_.Drop(call);
    changed_.SignalAll();
    return {};
  }
  const Instant deadline = core_.session().NextDeadline();
  const bool was_read = call->reading;
  PushPullCore::Actions actions;
  const bool accepted = core_.OnReply(call, status, reply, clock_.Now(), &actions);
  // Waking a thread for nothing costs more than a small message.
  const bool awaited = watchers_ > 0 || (was_read && core_.FindEnded(call->message.op) != nullptr);
  if (awaited || core_.session().NextDeadline() < deadline) changed_.SignalAll();
  return {accepted, TakeActionsLocked(std::move(actions))};
}

}  // namespace capstan::worker
