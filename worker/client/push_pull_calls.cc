// PushPullClient places, sends and reads its messages.
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

constexpr int64_t kSharedBytesMin = 16 << 10;  // Smaller messages gain nothing.
// The most bytes of pushes that the calling thread starts itself, without the sender.
constexpr int64_t kSentAtOnceMax = 1 << 20;

SharedLane::Direction DirectionOf(const SendMessage& message) {
  return message.request.kind == OpKind::kPush ? SharedLane::Direction::kPush
                                               : SharedLane::Direction::kPull;
}

// The room in shared memory for values of these sizes; 0: they do not go there.
int64_t SharedBytes(const std::vector<int64_t>& sizes) {
  const int64_t bytes = RoomBytes(sizes);
  return bytes >= kSharedBytesMin ? bytes : 0;
}

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

}  // namespace

std::shared_ptr<PushPullClient::Call> PushPullClient::MakeCallLocked(const SendMessage& message) {
  auto call = tracker_.Make<Call>();
  call->message = message;
  call->peer = peers_[static_cast<size_t>(message.server)];
  const Payload& payload = payloads_.at(message.op);
  call->gradient = payload.gradient;
  call->gradient_halves = payload.gradient_halves;
  call->destination = payload.destination;
  call->keys = payload.keys;
  KnownKeyLists& known =
      known_lists_.try_emplace(call->peer.get(), options_.key_lists).first->second;
  call->forms = known.Forms(message, *call->keys);
  call->sizes = ValueSizes(message, options_.formats, *call->keys, call->forms);
  const Instant now = clock_.Now();
  if (call->peer->lane().WantsOffer(now) || call->peer->data_lane().WantsOffer(now)) {
    offers_.push_back(call->peer);
  }
  calls_.insert(call);
  return call;
}

bool PushPullClient::MustWaitLocked(const Call& call) const {
  if (call.message.request.kind == OpKind::kPush) {
    // These pushes are answered when others have arrived: they must not hold those back.
    if (options_.session.acknowledgement == Acknowledgement::kWholeIteration) return false;
    const auto pushing = pushing_.find(call.peer.get());
    if (pushing != pushing_.end() && pushing->second > 0 &&
        pushing->second + RoomBytes(call.sizes) > options_.push_bytes_max) {
      return true;
    }
  }
  return call.peer->lane().MustWait(DirectionOf(call.message), SharedBytes(call.sizes));
}

void PushPullClient::PlaceLocked(Call& call) {
  call.lease = call.peer->lane().Take(DirectionOf(call.message), SharedBytes(call.sizes));
  if (call.message.request.kind == OpKind::kPush) {
    call.pushing = RoomBytes(call.sizes);
    pushing_[call.peer.get()] += call.pushing;
  }
  ++counts_.messages;
  if (call.lease) ++counts_.shared_messages;
}

std::variant<PushMessage, v1::PullRequest> PushPullClient::Call::Encode(const CallerId& caller,
                                                                        const Options& options) {
  if (message.request.kind == OpKind::kPush) {
    PushMessage push =
        EncodePush(caller, message, gradient, options.formats, *keys, forms, gradient_halves);
    if (lease) PutValues(lease.room(), &push);
    gradient.reset();
    gradient_halves.reset();
    return push;
  }
  v1::PullRequest pull;
  EncodePull(caller, message, options.pull_wait_limit, &pull, options.formats, *keys, forms);
  if (lease) NameRoom(lease.room(), sizes, &pull);
  return pull;
}

void PushPullClient::AskLocked(int server) {
  auto ask = tracker_.Make<Ask>();
  ask->server = routing_.servers[static_cast<size_t>(server)];
  ask->peer = peers_[static_cast<size_t>(server)];
  if (ask->peer->HasMoved()) session_.Heard(ask->server, clock_.Now());
  ask->request.set_job_id(options_.job);
  SetDeadline(ask->context, options_.ask_timeout);
  asks_.insert(ask);
  ask_queue_.push_back(std::move(ask));
}

void PushPullClient::OnAskDone(const std::shared_ptr<Ask>& ask, const absl::Status& status) {
  // An invalid table counts as none: the next server is asked soon.
  if (status.ok() && ask->response.routing().job_id() == options_.job) {
    SetRouting(ask->response.routing()).IgnoreError();
  }
  absl::MutexLock lock(&mutex_);
  if (IsAnswer(status)) session_.Heard(ask->server, clock_.Now());
  asks_.erase(ask);
  changed_.SignalAll();
}

void PushPullClient::QueuePushLocked(std::shared_ptr<Call> call) {
  // A backward pass ends the last layers first. Layers that the next forward pass reads first
  // overtake pushes that still wait, so that their parameters return first, too.
  const auto turn = [](const Call& each) {
    return std::pair(each.message.op, each.message.shards.front().key);
  };
  const auto place =
      std::upper_bound(pushes_.begin(), pushes_.end(), call,
                       [&turn](const auto& a, const auto& b) { return turn(*a) < turn(*b); });
  pushes_.insert(place, std::move(call));
}

bool PushPullClient::MayTakeLocked(const Calls& calls) const {
  if (calls.empty()) return false;
  const Call& first = *calls.front();
  return !session_.Expects(first.message.message) || !MustWaitLocked(first);
}

std::shared_ptr<PushPullClient::Call> PushPullClient::TakeLocked(Calls* calls) {
  std::shared_ptr<Call> call = std::move(calls->front());
  calls->pop_front();
  if (session_.Expects(call->message.message)) {
    if (calls != &placed_) PlaceLocked(*call);
    return call;
  }
  calls_.erase(call);  // The routing table has changed meanwhile.
  return nullptr;
}

void PushPullClient::TakeSmallPushesLocked(std::vector<std::shared_ptr<Call>>* calls) {
  int64_t bytes = 0;
  for (const std::shared_ptr<Call>& call : pushes_) bytes += RoomBytes(call->sizes);
  if (bytes > kSentAtOnceMax) return;
  while (MayTakeLocked(pushes_)) {
    if (std::shared_ptr<Call> call = TakeLocked(&pushes_)) calls->push_back(std::move(call));
  }
}

bool PushPullClient::NextQueued(Task* task) {
  *task = {};
  absl::MutexLock lock(&mutex_);
  sending_ = false;
  auto any = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return closing_ || !ask_queue_.empty() || !offers_.empty() || !placed_.empty() ||
           !pushes_.empty() || !pulls_.empty();
  };
  mutex_.Await(absl::Condition(&any));
  auto ready = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return closing_ || !ask_queue_.empty() || !offers_.empty() || !placed_.empty() ||
           MayTakeLocked(pushes_) || MayTakeLocked(pulls_);
  };
  const bool in_time = mutex_.AwaitWithTimeout(absl::Condition(&ready), options_.push_patience);
  if (closing_) return false;
  if (!in_time) {
    sending_ = !pushes_.empty();
    if (sending_) task->call = TakeLocked(&pushes_);
    return true;
  }
  if (!ask_queue_.empty()) {
    task->ask = std::move(ask_queue_.front());
    ask_queue_.pop_front();
  } else if (!offers_.empty()) {
    task->offer = std::move(offers_.front());
    offers_.pop_front();
  } else if (!placed_.empty()) {
    task->call = TakeLocked(&placed_);
  } else {
    task->call = TakeLocked(MayTakeLocked(pushes_) ? &pushes_ : &pulls_);
  }
  sending_ = true;
  return true;
}

void PushPullClient::SendQueued() {
  for (Task task; NextQueued(&task);) {
    if (task.ask != nullptr) {
      task.ask->peer->control().async()->GetRouting(
          &task.ask->context, &task.ask->request, &task.ask->response,
          [this, ask = task.ask](const grpc::Status& status) {
            OnAskDone(ask, FromGrpcStatus(status));
          });
    }
    if (task.offer != nullptr) {
      const Instant now = clock_.Now();
      if (task.offer->lane().WantsOffer(now)) task.offer->lane().Offer(now);
      task.offer->data_lane().Offer(now);
    }
    if (task.call != nullptr) StartCalls({task.call}, kSendPatience);
  }
}

std::shared_ptr<BodyPlaces> PushPullClient::PlacesOf(const std::shared_ptr<Call>& call) {
  const bool large = std::any_of(call->sizes.begin(), call->sizes.end(),
                                 [](int64_t bytes) { return bytes >= PullPlaces::kBytesMin; });
  if (call->message.request.kind == OpKind::kPush || call->lease || !large) return nullptr;
  return std::make_shared<PullPlaces>(
      PullPlaces::PartsOf(call->message, options_.formats, *call->keys, call->destination.halves),
      [this, call]() -> PullArrays {
        if (!BeginRead(*call)) return nullptr;
        straight_messages_.fetch_add(1, std::memory_order_relaxed);
        return call->destination;
      });
}

void PushPullClient::StartCalls(const std::vector<std::shared_ptr<Call>>& calls,
                                absl::Duration patience) {
  for (const std::shared_ptr<Call>& call : calls) {
    if (options_.on_message != nullptr) call->started = clock_.Now();
    if (options_.history != nullptr) options_.history->Begun(call->message);
    const DataMethod method =
        call->message.request.kind == OpKind::kPush ? DataMethod::kPush : DataMethod::kPull;
    ServerPeer& peer = *call->peer;
    if (!call->lease) {
      call->under_way = std::accumulate(call->sizes.begin(), call->sizes.end(), int64_t{0});
    }
    const int64_t under_way = peer.under_way().fetch_add(call->under_way) + call->under_way;
    const absl::Duration grpc_timeout =
        options_.call_timeout + absl::Seconds(under_way / kSlowestBytesASecond);
    const bool data = call->transfer.Start(peer.data_lane().For(method), peer.NextData(),
                                           {.message = call->Encode(caller_, options_),
                                            .timeout = options_.call_timeout,
                                            .patience = patience,
                                            .places = PlacesOf(call),
                                            .grpc_timeout = grpc_timeout},
                                           [this, call](absl::StatusOr<ValueCall::Answer> answer) {
                                             OnCallDone(call, std::move(answer));
                                           });
    if (data) data_messages_.fetch_add(1, std::memory_order_relaxed);
  }
}

bool PushPullClient::BeginRead(Call& call) {
  absl::MutexLock lock(&mutex_);
  // Values in use must not be written: the values of a shard that is read again have to wait.
  const auto used = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return call.message.op == used_ && session_.ProgressOf(used_, TableId(0)).reread;
  };
  while (rerouting_ > 0 || used()) changed_.Wait(&mutex_);
  if (closing_ || !session_.Expects(call.message.message)) return false;
  call.reading = true;
  ++readers_[call.message.op];
  return true;
}

absl::Status PushPullClient::LearnListsLocked(const Call& call, const DecodedReply& reply) {
  KnownKeyLists& known = known_lists_.at(call.peer.get());
  const auto named = std::count(call.forms.begin(), call.forms.end(), KeyForm::kName);
  if (!reply.unknown_key_list) {
    counts_.named_lists += named;
    known.Answered(call.message, *call.keys, call.forms);
    return absl::OkStatus();
  }
  ++counts_.unknown_lists;
  known.Forget(call.message, *call.keys, call.forms);
  if (named > 0) return absl::OkStatus();
  return absl::InternalError("does not know a key list, in answer to a message that names none");
}

void PushPullClient::CancelReadersLocked(std::optional<OpId> op) {
  for (const std::shared_ptr<Call>& call : calls_) {
    if (call->reading && call->message.op == op.value_or(call->message.op)) call->transfer.Cancel();
  }
}

void PushPullClient::EndReadLocked(Call& call) {
  call.reading = false;
  const auto readers = readers_.find(call.message.op);
  if (--readers->second > 0) return;
  readers_.erase(readers);
  if (watchers_ > 0 || ended_.contains(call.message.op)) changed_.SignalAll();
}

void PushPullClient::AwaitReadersLocked(const std::function<bool()>& gone) {
  ++watchers_;
  while (!gone()) changed_.Wait(&mutex_);
  --watchers_;
}

void PushPullClient::OnCallDone(const std::shared_ptr<Call>& call,
                                absl::StatusOr<ValueCall::Answer> answer) {
  const absl::Status status = answer.status();
  absl::StatusOr<DecodedReply> reply = DecodedReply();
  const bool read = call->reading || (status.ok() && BeginRead(*call));
  if (read && status.ok()) reply = call->Decode(*std::move(answer), options_.formats);
  if (options_.on_message != nullptr) {
    options_.on_message(call->message, call->started, clock_.Now());
  }
  std::vector<std::shared_ptr<Call>> calls;
  // The history notes every acknowledged push, but only pulls that the session still expected.
  const bool push = call->message.request.kind == OpKind::kPush;
  const bool answered = options_.history != nullptr && status.ok() && reply.ok();
  const std::vector<ShardReply> shards = answered ? reply->shards : std::vector<ShardReply>();
  if (answered && push) options_.history->Answered(call->message, shards);
  bool taken = false;
  {
    absl::MutexLock lock(&mutex_);
    const Instant deadline = session_.NextDeadline();
    if (read) EndReadLocked(*call);
    // The answer was broken off or cannot be read; or another message has made the operation fail
    // while this one was being read.
    const bool whole = status.ok() && reply.ok();
    if (read && (!whole || !session_.Expects(call->message.message))) {
      session_.ForgetHeld(call->message);
    }
    if (!closing_ && session_.Expects(call->message.message)) {
      absl::Status outcome = status.ok() ? reply.status() : status;
      if (outcome.ok()) outcome = LearnListsLocked(*call, *reply);
      if (!reply.ok()) reply = DecodedReply();
      SessionActions actions;
      session_.OnReply(call->message.message, outcome, reply->shards, reply->waiting, clock_.Now(),
                       &actions);
      taken = outcome.ok();
      calls = TakeActionsLocked(actions);
    }
    call->peer->under_way() -= call->under_way;
    if (MayStillRun(status)) call->lease.Abandon();
    call->lease.GiveBack();
    if (call->pushing > 0) pushing_[call->peer.get()] -= call->pushing;
    calls_.erase(call);
    // Waking a thread for nothing costs more than a small message. (TakeActionsLocked has signalled
    // the ends of operations.)
    const bool told = closing_ || watchers_ > 0 || session_.NextDeadline() < deadline;
    if (told) changed_.SignalAll();
  }
  if (answered && !push && taken) options_.history->Answered(call->message, shards);
  StartCalls(calls);
}

absl::StatusOr<DecodedReply> PushPullClient::Call::Decode(ValueCall::Answer answer,
                                                          const Formats& formats) const {
  if (message.request.kind == OpKind::kPush) {
    return DecodePush(message, std::get<v1::PushResponse>(answer));
  }
  PullAnswer& pulled = std::get<PullAnswer>(answer);
  if (lease) CAPSTAN_RETURN_IF_ERROR(TakeValues(lease.room().segment, &pulled));
  return DecodePull(message, pulled, destination, *keys, formats);
}

}  // namespace capstan::worker
