// PushPullClient starts its calls and reads their answers.
#include <algorithm>
#include <string>
#include <utility>

#include "worker/client/messages/pull_places.h"
#include "worker/client/push_pull_client.h"

namespace capstan::worker {

void PushPullClient::AskRouting(const CallQueue::Question& question) {
  question.transport->AskRouting(
      options_.job, options_.ask_timeout,
      [this, server = question.server](const absl::StatusOr<v1::RoutingTable>& routing) {
        OnRouting(server, routing);
      });
}

void PushPullClient::OnRouting(const std::string& server,
                               const absl::StatusOr<v1::RoutingTable>& routing) {
  // An invalid table counts as none: the next server is asked soon.
  if (routing.ok() && routing->job_id() == options_.job) SetRouting(*routing).IgnoreError();
  absl::MutexLock lock(&mutex_);
  if (IsAnswer(routing.status())) core_.Heard(server, clock_.Now());
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
    if (task.offer != nullptr) task.offer->Offer(clock_.Now());
    if (task.call != nullptr) StartCalls({task.call}, kSendPatience);
  }
}

std::shared_ptr<PayloadPlaces> PushPullClient::PlacesOf(const std::shared_ptr<ClientCall>& call) {
  const bool large = std::any_of(call->sizes.begin(), call->sizes.end(),
                                 [](int64_t bytes) { return bytes >= PullPlaces::kBytesMin; });
  if (call->is_push() || call->in_shared_memory || !large) return nullptr;
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
  for (const std::shared_ptr<ClientCall>& call : calls) StartCall(call, patience);
}

void PushPullClient::StartCall(const std::shared_ptr<ClientCall>& call, absl::Duration patience) {
  const Instant started = options_.on_message != nullptr ? clock_.Now() : Instant();
  if (options_.history != nullptr) options_.history->Begun(call->message);
  const bool data = call->transfer->Start(
      {.message = call->Encode(caller_, options_.formats, options_.pull_wait_limit),
       .sizes = call->sizes,
       .timeout = options_.call_timeout,
       .patience = patience,
       .places = PlacesOf(call)},
      [this, call, started](const absl::StatusOr<Transfer::Answer>& answer) {
        OnCallDone(call, started, answer);
      });
  if (data) data_messages_.fetch_add(1, std::memory_order_relaxed);
}

bool PushPullClient::BeginRead(ClientCall& call) {
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

void PushPullClient::OnCallDone(const std::shared_ptr<ClientCall>& call, Instant started,
                                const absl::StatusOr<Transfer::Answer>& answer) {
  const absl::Status status = answer.status();
  absl::StatusOr<DecodedReply> reply = DecodedReply();
  const bool read = call->reading || (status.ok() && BeginRead(*call));
  if (read && status.ok()) reply = call->Decode(*answer, options_.formats);
  if (options_.on_message != nullptr) options_.on_message(call->message, started, clock_.Now());
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
    const std::shared_ptr<ClientCall>& call, const absl::Status& status,
    const absl::StatusOr<DecodedReply>& reply) {
  absl::MutexLock lock(&mutex_);
  call->transfer->End();
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
