// SimTask's calls to servers: what PushPullClient does with threads and connections.
#include <algorithm>
#include <utility>

#include "tests/simulation/shells/sim_task.h"
#include "tests/simulation/shells/sim_task_options.h"
#include "tests/simulation/shells/sim_transport.h"

namespace capstan::sim {
namespace {

constexpr absl::Duration kPullWaitLimit = absl::Milliseconds(500);
constexpr absl::Duration kCallTimeout = absl::Seconds(30);
constexpr absl::Duration kAskTimeout = absl::Seconds(1);
constexpr absl::Duration kPushPatience = absl::Milliseconds(100);

}  // namespace

worker::PushPullCore::Options SimTask::CoreOptions() const {
  return {.session = SessionOptions(assignment_.spec()),
          .bucket_bytes = {},
          .formats = {},
          .push_bytes_max = job_->options.push_bytes_max,
          .key_lists = {.keys_min = 1},
          .make_transport = [this](const std::string&, const std::string& address) {
            return std::make_shared<SimTransport>(world_, self_, address);
          }};
}

worker::OpPayload SimTask::PayloadOf(const Gradient& gradient) const {
  Workload::Named named = job_->workload.NamedRows(gradient.values);
  return {.gradient = std::move(named.values),
          .gradient_halves = nullptr,
          .keys = std::make_shared<const worker::AllTableKeys>(std::move(named.keys))};
}

absl::StatusOr<worker::OpId> SimTask::Push(const worker::Work& work) {
  Gradient gradient{.values = std::make_shared<Arrays>(job_->workload.Zeros())};
  worker::PushPullCore::Actions actions;
  const absl::StatusOr<worker::OpId> op =
      core_.Start({.kind = worker::OpKind::kPush,
                   .iteration = work.iteration,
                   .slots = work.slots,
                   .held = true},
                  PayloadOf(gradient), process_->Now(), &actions);
  if (!op.ok()) return op;
  gradients_[*op] = std::move(gradient);
  Perform(std::move(actions));
  return op;
}

absl::StatusOr<worker::OpId> SimTask::Pull(const worker::Work& work, bool snapshot) {
  pulling_ = job_->workload.keys();
  if (row_cache_.has_value() && !snapshot) {
    pulling_[0].wanted = std::make_shared<const WantedKeys>(
        row_cache_->Begin(pulling_[0].batch, work.iteration, absl::MakeSpan(parameters_[0])));
    pulled_for_ = work.iteration;
  }
  worker::PushPullCore::Actions actions;
  const absl::StatusOr<worker::OpId> op = core_.Start(
      {.kind = worker::OpKind::kPull, .iteration = work.iteration, .snapshot = snapshot},
      {.gradient = nullptr,
       .gradient_halves = nullptr,
       .destination = &parameters_,
       .keys = std::make_shared<const worker::AllTableKeys>(pulling_)},
      process_->Now(), &actions);
  if (!op.ok()) return op;
  Perform(std::move(actions));
  return op;
}

void SimTask::CancelPull(worker::OpId op) {
  worker::PushPullCore::Actions actions;
  core_.CancelPull(op, process_->Now(), &actions);
  Perform(std::move(actions));
}

worker::RowsRead SimTask::Pulled(const worker::OpDone& done) {
  if (!row_cache_.has_value()) return {.staleness = done.staleness};
  const worker::RowsRead read =
      row_cache_->End({.staleness = done.staleness, .membership = done.membership}, parameters_[0]);
  world_->reached[Reached::kKeptRowsUsed] += read.cached;
  if (read.again) ++world_->reached[Reached::kKeptRowsDropped];
  if (!read.again) TellRowsUsed(job_, task_key_, pulled_for_, pulling_[0], parameters_[0]);
  return read;
}

void SimTask::Perform(worker::PushPullCore::Actions actions) {
  for (const std::shared_ptr<worker::ClientCall>& call : actions.start) Send(call);
  StartQueued();
  for (const worker::OpId op : actions.ended) {
    const worker::OpDone* const done = core_.FindEnded(op);
    if (done == nullptr) continue;  // The end of the run has cancelled it.
    const absl::Status status = done->status;
    if (const auto push = gradients_.find(op); push != gradients_.end()) {
      const Batch batch = push->second.batch;
      gradients_.erase(push);
      const bool is_batch = status.ok() && job_->options.own_operations == 0;
      if (is_batch) job_->Tell([&](Checker& checker) { checker.BatchDone(task_key_, batch); });
    }
    if (run_.has_value() && run_->operations.contains(op)) EndRunOperation(op);
    if (absl::IsAborted(status)) ++world_->reached[Reached::kCallerFenced];
    if (absl::IsOutOfRange(status)) ++world_->reached[Reached::kPullPast];
  }
  if (actions.need_routing) ReportSoon();
  ArmSession();
  Changed();
}

void SimTask::StartQueued() {
  while (core_.queue().IsReady()) {
    const worker::CallQueue::Task task = core_.queue().Take();
    if (task.question.has_value()) AskRouting(*task.question);
    if (task.call != nullptr) Send(task.call);
  }
  if (!core_.queue().HasPushes() || late_push_timer_ != 0) return;
  late_push_timer_ = process_->After(kPushPatience, [this] {
    late_push_timer_ = 0;
    if (core_.queue().HasPushes()) {
      ++world_->reached[Reached::kPushSentLate];
      if (const auto call = core_.queue().TakeLatePush()) Send(call);
    }
    StartQueued();
  });
}

void SimTask::ArmSession() {
  const Instant next = core_.session().NextDeadline();
  if (session_timer_ != 0 && session_timer_for_ == next) return;
  process_->CancelTimer(session_timer_);
  session_timer_for_ = next;
  session_timer_ = process_->At(next, [this] {
    session_timer_ = 0;
    worker::PushPullCore::Actions actions;
    core_.Tick(process_->Now(), &actions);
    Perform(std::move(actions));
  });
}

void SimTask::Send(const std::shared_ptr<worker::ClientCall>& call) {
  TellSent(*call);
  call->transfer->Start({.message = call->Encode(caller_, {}, kPullWaitLimit),
                         .sizes = call->sizes,
                         .timeout = kCallTimeout},
                        [this, call](const absl::StatusOr<worker::Transfer::Answer>& answer) {
                          OnAnswer(call, answer);
                        });
}

void SimTask::TellSent(const worker::ClientCall& call) {
  for (const worker::SendMessage::Shard& shard : call.message.shards) {
    if (!call.is_push()) {
      job_->Tell([&](Checker& checker) {
        checker.PullSent(task_key_, shard.key, call.message.request.iteration);
      });
      continue;
    }
    if (sent_[{shard.key, shard.sequence}]++ > 0) ++world_->reached[Reached::kPushRepeated];
    const Gradient& gradient = gradients_.at(call.message.op);
    const std::vector<float>& table =
        (*gradient.values)[static_cast<size_t>(shard.key.table.value())];
    const Range part = job_->workload.PartOf(shard.key, shard.elements);
    const ShardPush push{.task_key = task_key_,
                         .shard = shard.key,
                         .sequence = shard.sequence,
                         .batch = gradient.batch,
                         .values = absl::MakeConstSpan(table).subspan(
                             static_cast<size_t>(part.begin), static_cast<size_t>(part.size()))};
    job_->Tell([&](Checker& checker) { checker.PushSent(push); });
  }
}

void SimTask::OnAnswer(const std::shared_ptr<worker::ClientCall>& call,
                       const absl::StatusOr<worker::Transfer::Answer>& answer) {
  if (!core_.IsExpected(*call)) {
    core_.Drop(call);
    return StartQueued();
  }
  absl::StatusOr<worker::DecodedReply> reply = worker::DecodedReply();
  if (answer.ok()) {
    core_.BeginRead(*call);
    reply = call->Decode(*answer, {});
  } else {
    reply = answer.status();
  }
  if (absl::IsFailedPrecondition(reply.status())) {
    ++world_->reached[Reached::kStaleRoutingRefused];
  }
  if (reply.ok()) TellAnswered(*call, *reply);
  worker::PushPullCore::Actions actions;
  core_.OnReply(call, answer.status(), reply, process_->Now(), &actions);
  Perform(std::move(actions));
}

void SimTask::TellAnswered(const worker::ClientCall& call, const worker::DecodedReply& reply) {
  if (reply.unknown_key_list) ++world_->reached[Reached::kKeyListUnknown];
  for (size_t i = 0; i < call.message.shards.size(); ++i) {
    const ShardKey& key = call.message.shards[i].key;
    const worker::ShardReply& shard = reply.shards[i];
    if (shard.outcome == worker::ShardReply::Outcome::kNotReady && !call.is_push()) {
      ++world_->reached[Reached::kPullNotReady];
    }
    if (call.is_push()) {
      if (reply.unknown_key_list) continue;
      const Batch& batch = gradients_.at(call.message.op).batch;
      job_->Tell([&](Checker& checker) {
        checker.PushAcknowledged(task_key_, key, batch, shard.version);
      });
    } else if (shard.outcome == worker::ShardReply::Outcome::kDone) {
      const ShardRead read{.task_key = task_key_,
                           .shard = key,
                           .iteration = call.message.request.iteration,
                           .snapshot = call.message.request.snapshot,
                           .version = shard.version};
      job_->Tell([&](Checker& checker) { checker.ReadDone(read); });
    }
  }
}

void SimTask::AskRouting(const worker::CallQueue::Question& question) {
  question.transport->AskRouting(
      task_key_.job, kAskTimeout,
      [this, name = question.server](const absl::StatusOr<v1::RoutingTable>& routing) {
        if (worker::IsAnswer(routing.status())) core_.Heard(name, process_->Now());
        if (routing.ok()) TakeRouting(*routing);
      });
}

void SimTask::TakeRouting(const v1::RoutingTable& proto) {
  absl::StatusOr<worker::Routing> routing = worker::DecodeRouting(proto);
  if (!routing.ok() || !core_.IsNewer(*routing).value_or(false)) return;
  worker::PushPullCore::Actions actions;
  core_.SetRouting(*std::move(routing), process_->Now(), &actions);
  Perform(std::move(actions));
}

}  // namespace capstan::sim
