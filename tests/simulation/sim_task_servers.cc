// SimTask's calls to servers: as worker/client makes them.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/net/frame.h"
#include "tests/simulation/methods.h"
#include "tests/simulation/sim_task.h"
#include "tests/simulation/sim_task_options.h"

namespace capstan::sim {
namespace {

constexpr absl::Duration kPullWaitLimit = absl::Milliseconds(500);
constexpr absl::Duration kCallTimeout = absl::Seconds(30);
constexpr absl::Duration kAskTimeout = absl::Seconds(1);

}  // namespace

absl::StatusOr<worker::OpId> SimTask::Push(const worker::Work& work) {
  const worker::OpId op(next_op_++);
  worker::SessionActions actions;
  const absl::Status started = session_.Start(op,
                                              {.kind = worker::OpKind::kPush,
                                               .iteration = work.iteration,
                                               .slots = work.slots,
                                               .held = true},
                                              process_->Now(), &actions);
  if (!started.ok()) return started;
  gradients_[op].values = std::make_shared<Arrays>(job_->workload.Zeros());
  Perform(std::move(actions));
  return op;
}

absl::StatusOr<worker::OpId> SimTask::Pull(const worker::Work& work, bool snapshot) {
  const worker::OpId op(next_op_++);
  pulling_ = job_->workload.keys();
  if (row_cache_.has_value() && !snapshot) {
    pulling_[0].wanted = std::make_shared<const WantedKeys>(
        row_cache_->Begin(pulling_[0].batch, work.iteration, absl::MakeSpan(parameters_[0])));
    pulled_for_ = work.iteration;
  }
  worker::SessionActions actions;
  const absl::Status started = session_.Start(
      op, {.kind = worker::OpKind::kPull, .iteration = work.iteration, .snapshot = snapshot},
      process_->Now(), &actions);
  if (!started.ok()) return started;
  Perform(std::move(actions));
  return op;
}

void SimTask::CancelPull(worker::OpId op) {
  worker::SessionActions actions;
  session_.CancelPull(op, process_->Now(), &actions);
  ended_.erase(op);
  Perform(std::move(actions));
}

worker::RowsRead SimTask::Pulled(const worker::OpDone& done) {
  if (!row_cache_.has_value()) return {.staleness = done.staleness};
  const worker::RowsRead read =
      row_cache_->End({.staleness = done.staleness, .membership = done.membership}, parameters_[0]);
  world_->reached[Reached::kKeptRowsUsed] += read.cached;
  if (read.again) ++world_->reached[Reached::kKeptRowsDropped];
  if (!read.again) TellRowsUsed(job_, life_, pulled_for_, pulling_[0], parameters_[0]);
  return read;
}

void SimTask::Perform(worker::SessionActions actions) {
  for (const worker::SendMessage& message : actions.send) Send(message);
  for (const int server : actions.ask_routing) AskRouting(server);
  for (worker::OpDone& done : actions.done) {
    if (const auto push = gradients_.find(done.op); push != gradients_.end()) {
      const Batch batch = push->second.batch;
      gradients_.erase(push);
      if (done.status.ok()) {
        job_->Tell([&](Checker& checker) { checker.BatchDone(life_, batch); });
      }
    }
    if (absl::IsAborted(done.status)) ++world_->reached[Reached::kCallerFenced];
    if (absl::IsOutOfRange(done.status)) ++world_->reached[Reached::kPullPast];
    ended_[done.op] = std::move(done);
  }
  if (actions.need_routing) ReportSoon();
  ArmSession();
  Changed();
}

void SimTask::ArmSession() {
  const Instant next = session_.NextDeadline();
  if (session_timer_ != 0 && session_timer_for_ == next) return;
  process_->CancelTimer(session_timer_);
  session_timer_for_ = next;
  session_timer_ = process_->At(next, [this] {
    session_timer_ = 0;
    worker::SessionActions actions;
    session_.Tick(process_->Now(), &actions);
    Perform(std::move(actions));
  });
}

void SimTask::Send(const worker::SendMessage& message) {
  const std::string& address = routing_.servers(message.server).address();
  const auto endpoint = World::EndpointOf(address);
  worker::KnownKeyLists& known =
      known_lists_.try_emplace(address, worker::KnownKeyLists::Options{.keys_min = 1})
          .first->second;
  if (message.request.kind == worker::OpKind::kPush) {
    const Gradient& gradient = gradients_.at(message.op);
    const Workload::Named named = job_->workload.NamedRows(gradient.values);
    const std::vector<worker::KeyForm> forms = known.Forms(message, named.keys);
    const PushMessage push =
        worker::EncodePush(caller_, message, named.values, {}, named.keys, forms);
    for (const worker::SendMessage::Shard& shard : message.shards) {
      if (sent_[{shard.key, shard.sequence}]++ > 0) ++world_->reached[Reached::kPushRepeated];
      const std::vector<float>& table =
          (*gradient.values)[static_cast<size_t>(shard.key.table.value())];
      const Range part = job_->workload.PartOf(shard.key, shard.elements);
      const ShardPush sent{.life = life_,
                           .shard = shard.key,
                           .sequence = shard.sequence,
                           .batch = gradient.batch,
                           .values = absl::MakeConstSpan(table).subspan(
                               static_cast<size_t>(part.begin), static_cast<size_t>(part.size()))};
      job_->Tell([&](Checker& checker) { checker.PushSent(sent); });
    }
    world_->network.Call(
        self_, endpoint, kPush,
        EncodeFrame({.kind = FrameKind::kRequest}, std::string(Encode(push))), kCallTimeout,
        [this, message, forms, address](const absl::Status& status, const std::string& answer) {
          OnPushReply(message, {address, forms}, status, answer);
        });
    return;
  }
  for (const worker::SendMessage::Shard& shard : message.shards) {
    job_->Tell(
        [&](Checker& checker) { checker.PullSent(life_, shard.key, message.request.iteration); });
  }
  v1::PullRequest request;
  const std::vector<worker::KeyForm> forms = known.Forms(message, pulling_);
  worker::EncodePull(caller_, message, kPullWaitLimit, &request, {}, pulling_, forms);
  world_->network.Call(
      self_, endpoint, kPull,
      EncodeFrame({.kind = FrameKind::kRequest}, request.SerializeAsString()), kCallTimeout,
      [this, message, forms, address](const absl::Status& status, const std::string& answer) {
        OnPullReply(message, {address, forms}, status, answer);
      });
}

// Takes in the answer's word on the lists of keys that were named.
void SimTask::LearnLists(const worker::SendMessage& message, const KeysSent& sent,
                         const worker::DecodedReply& reply) {
  worker::KnownKeyLists& known = known_lists_.at(sent.address);
  if (!reply.unknown_key_list) {
    return known.Answered(message, job_->workload.keys(), sent.forms);
  }
  known.Forget(message, job_->workload.keys(), sent.forms);
  ++world_->reached[Reached::kKeyListUnknown];
}

// The body of an answer. A damaged one ends the connection, as in DataCaller.
absl::StatusOr<std::string> SimTask::BodyOf(const KeysSent& sent, const absl::Status& status,
                                            const std::string& answer) {
  if (!status.ok()) return status;
  absl::StatusOr<std::string> body = DecodeFrame(answer);
  if (body.ok()) return body;
  ++world_->reached[Reached::kDamagedFrame];
  world_->network.Reset(self_, World::EndpointOf(sent.address));
  return absl::UnavailableError(body.status().message());
}

void SimTask::OnPushReply(const worker::SendMessage& message, const KeysSent& sent,
                          const absl::Status& status, const std::string& answer) {
  if (!session_.Expects(message.message)) return;
  const absl::StatusOr<std::string> body = BodyOf(sent, status, answer);
  absl::Status outcome = body.status();
  worker::DecodedReply decoded;
  v1::PushResponse response;
  if (outcome.ok() && !response.ParseFromString(*body)) {
    outcome = absl::InternalError("unreadable answer");
  }
  if (outcome.ok()) {
    auto read = worker::DecodePush(message, response);
    outcome = read.status();
    if (read.ok()) decoded = *std::move(read);
  }
  if (absl::IsFailedPrecondition(outcome)) ++world_->reached[Reached::kStaleRoutingRefused];
  if (outcome.ok()) LearnLists(message, sent, decoded);
  const bool taken = outcome.ok() && !decoded.unknown_key_list;
  for (size_t i = 0; taken && i < message.shards.size(); ++i) {
    const auto answered = response.shards(static_cast<int>(i)).outcome();
    if (answered == v1::ShardPushResult::DUPLICATE) {
      ++world_->reached[Reached::kPushDuplicateAnswered];
    }
    if (answered == v1::ShardPushResult::LATE) ++world_->reached[Reached::kPushLate];
    job_->Tell([&](Checker& checker) {
      checker.PushAcknowledged(life_, message.shards[i].key, gradients_.at(message.op).batch,
                               decoded.shards[i].version);
    });
  }
  worker::SessionActions actions;
  session_.OnReply(message.message, outcome, decoded.shards, decoded.waiting, process_->Now(),
                   &actions);
  Perform(std::move(actions));
}

void SimTask::OnPullReply(const worker::SendMessage& message, const KeysSent& sent,
                          const absl::Status& status, const std::string& answer) {
  if (!session_.Expects(message.message)) return;
  const absl::StatusOr<std::string> body = BodyOf(sent, status, answer);
  absl::Status outcome = body.status();
  worker::DecodedReply decoded;
  const absl::StatusOr<PullAnswer> parsed = DecodePullAnswer(absl::Cord(body.value_or("")));
  if (outcome.ok() && !parsed.ok()) outcome = absl::InternalError("unreadable answer");
  if (outcome.ok()) {
    auto read = worker::DecodePull(message, *parsed, &parameters_, pulling_);
    outcome = read.status();
    if (read.ok()) decoded = *std::move(read);
  }
  if (absl::IsFailedPrecondition(outcome)) ++world_->reached[Reached::kStaleRoutingRefused];
  if (outcome.ok()) LearnLists(message, sent, decoded);
  for (size_t i = 0; outcome.ok() && i < message.shards.size(); ++i) {
    if (decoded.shards[i].outcome == worker::ShardReply::Outcome::kNotReady) {
      ++world_->reached[Reached::kPullNotReady];
    }
    if (decoded.shards[i].outcome != worker::ShardReply::Outcome::kDone) continue;
    const ShardRead read{.life = life_,
                         .shard = message.shards[i].key,
                         .iteration = message.request.iteration,
                         .snapshot = message.request.snapshot,
                         .version = decoded.shards[i].version};
    job_->Tell([&](Checker& checker) { checker.ReadDone(read); });
  }
  worker::SessionActions actions;
  session_.OnReply(message.message, outcome, decoded.shards, decoded.waiting, process_->Now(),
                   &actions);
  Perform(std::move(actions));
}

void SimTask::AskRouting(int server) {
  v1::GetRoutingRequest request;
  request.set_job_id(life_.job);
  world_->network.Call(self_, World::EndpointOf(routing_.servers(server).address()), kGetRouting,
                       request.SerializeAsString(), kAskTimeout,
                       [this, name = routing_.servers(server).node_id()](
                           const absl::Status& status, const std::string& answer) {
                         if (worker::IsAnswer(status)) session_.Heard(name, process_->Now());
                         v1::GetRoutingResponse response;
                         if (status.ok() && response.ParseFromString(answer)) {
                           TakeRouting(response.routing());
                         }
                       });
}

void SimTask::TakeRouting(const v1::RoutingTable& proto) {
  const absl::StatusOr<worker::Routing> routing = worker::DecodeRouting(proto);
  if (!routing.ok() || routing->generation <= session_.routing_generation()) return;
  routing_ = proto;
  worker::SessionActions actions;
  session_.SetRouting(*routing, process_->Now(), &actions);
  Perform(std::move(actions));
}

}  // namespace capstan::sim
