#include "worker/client/push_pull_core.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/shared_memory/shared_values.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "common/types/message_limits.h"

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

// Pushes that are answered when others have arrived must not hold those back.
std::optional<int64_t> PushBytesMax(const PushPullCore::Options& options) {
  if (options.session.acknowledgement == Acknowledgement::kWholeIteration) return std::nullopt;
  return options.push_bytes_max;
}

}  // namespace

PushPullCore::PushPullCore(const Options& options)
    : options_(options), session_(options.session), queue_(&session_, PushBytesMax(options)) {}

// ---------------------------------------------------------------- operations

absl::StatusOr<bool> PushPullCore::IsNewer(const Routing& routing) const {
  if (routing.generation <= session_.routing_generation()) return false;
  if (routing_.shards.empty() || routing.shards.size() == routing_.shards.size()) return true;
  return absl::InvalidArgumentError(absl::StrCat("routing table: ", routing.shards.size(),
                                                 " shards, expected ", routing_.shards.size(),
                                                 " as before"));
}

void PushPullCore::SetRouting(Routing routing, Instant now, Actions* actions) {
  for (ShardRoute& shard : routing.shards) {
    const auto table = static_cast<size_t>(shard.key.table.value());
    if (table < options_.bucket_bytes.size()) shard.message_bytes = options_.bucket_bytes[table];
  }
  routing_ = std::move(routing);
  TakeTransports();
  SessionActions done;
  session_.SetRouting(routing_, now, &done);
  for (const std::shared_ptr<ClientCall>& call : queue_.calls()) {
    if (!IsExpected(*call)) call->transfer->Cancel();
  }
  TakeActions(done, now, actions);
}

void PushPullCore::TakeTransports() {
  transports_.clear();
  for (size_t server = 0; server < routing_.addresses.size(); ++server) {
    const std::string& node = routing_.servers[server];
    const std::string& address = routing_.addresses[server];
    std::shared_ptr<Transport>& transport = transport_by_server_[{node, address}];
    if (transport == nullptr) transport = options_.make_transport(node, address);
    transports_.push_back(transport.get());
  }
  std::map<Transport*, int64_t> bytes;
  for (const auto& [server, transport] : transport_by_server_) bytes[transport.get()] = 0;
  for (const ShardRoute& shard : routing_.shards) {
    bytes[transports_[static_cast<size_t>(shard.server)]] += 2 * RoomBytes({MessageBytes(shard)});
  }
  for (const auto& [transport, size] : bytes) {
    transport->SetSharedBytes(std::min(size, options_.shared_memory_bytes));
  }
}

absl::Status PushPullCore::CheckArrays(const OpRequest& request, const OpPayload& payload) const {
  const AllTableKeys& keys = *payload.keys;
  const bool push = request.kind == OpKind::kPush;
  const HalfArrays* const halves =
      push ? payload.gradient_halves.get() : payload.destination.halves;
  const auto held = [&](TableId table) {
    const SendMessage::Shard any = {.key = {table, ShardId(0)}};
    if (IsHalf({.request = request, .shards = {}}, any, options_.formats, halves)) {
      return std::ssize((*halves)[static_cast<size_t>(table.value())]);
    }
    return static_cast<ptrdiff_t>(push ? payload.gradient.Of(table).size()
                                       : payload.destination.FloatsOf(table).size());
  };
  std::vector<int64_t> shards(keys.size());
  for (const ShardRoute& shard : routing_.shards) {
    if (request.table.value_or(shard.key.table) != shard.key.table) continue;
    const auto table = static_cast<size_t>(shard.key.table.value());
    const bool sparse = table < keys.size() && keys[table].batch != nullptr;
    if (sparse) ++shards[table];
    const int64_t elements = sparse ? BucketsOf(keys[table]) : held(shard.key.table);
    if (elements >= shard.elements.end) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("table ", table, " has ", elements, sparse ? " buckets" : " elements",
                     " here, expected at least ", shard.elements.end));
  }
  for (size_t table = 0; table < keys.size(); ++table) {
    if (keys[table].batch == nullptr) continue;
    CAPSTAN_RETURN_IF_ERROR(
        Annotate(CheckRows(keys[table], shards[table], held(TableId(static_cast<int>(table)))),
                 absl::StrCat("table ", table)));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<int64_t>> PushPullCore::ShardBytes(const AllTableKeys& keys) const {
  std::vector<int64_t> bytes;
  if (keys.empty()) return bytes;
  for (const ShardRoute& shard : routing_.shards) {
    const TableKeys of_table = KeysOf({.key = shard.key}, keys);
    if (of_table.batch == nullptr) {
      bytes.push_back(MessageBytes(shard));
      continue;
    }
    const auto row_bytes =
        static_cast<int64_t>(sizeof(uint64_t)) + of_table.dim * static_cast<int64_t>(sizeof(float));
    const int64_t rows = of_table.batch->InBucket(shard.elements.begin).size();
    bytes.push_back(rows * row_bytes);
    if (bytes.back() <= kShardBytesMax) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("table ", shard.key.table.value(), ": ", rows, " keys of one bucket take ",
                     bytes.back(), " bytes with their values, expected at most ", kShardBytesMax,
                     ": name fewer keys, or use more buckets"));
  }
  return bytes;
}

absl::StatusOr<OpId> PushPullCore::Start(const OpRequest& request, OpPayload payload, Instant now,
                                         Actions* actions) {
  CAPSTAN_RETURN_IF_ERROR(CheckArrays(request, payload));
  CAPSTAN_ASSIGN_OR_RETURN(std::vector<int64_t> shard_bytes, ShardBytes(*payload.keys));
  const OpId op(next_op_++);
  payloads_[op] = std::move(payload);
  SessionActions done;
  const absl::Status started = session_.Start(op, request, now, &done, std::move(shard_bytes));
  if (!started.ok()) {
    payloads_.erase(op);
    return started;
  }
  TakeActions(done, now, actions);
  return op;
}

void PushPullCore::SetPayload(OpId op, OpPayload payload) { payloads_.at(op) = std::move(payload); }

void PushPullCore::Release(OpId op, TableId table, int64_t first, Instant now, Actions* actions) {
  SessionActions done;
  session_.Release(op, table, first, now, &done);
  TakeActions(done, now, actions);
}

void PushPullCore::CancelPull(OpId op, Instant now, Actions* actions) {
  SessionActions done;
  session_.CancelPull(op, now, &done);
  for (const std::shared_ptr<ClientCall>& call : queue_.calls()) {
    if (call->message.op == op) call->transfer->Cancel();
  }
  payloads_.erase(op);
  ended_.erase(op);
  TakeActions(done, now, actions);
}

void PushPullCore::Tick(Instant now, Actions* actions) {
  SessionActions done;
  session_.Tick(now, &done);
  TakeActions(done, now, actions);
}

const OpDone* PushPullCore::FindEnded(OpId op) const {
  const auto ended = ended_.find(op);
  return ended == ended_.end() ? nullptr : &ended->second;
}

OpDone PushPullCore::TakeEnded(OpId op) {
  const auto ended = ended_.find(op);
  OpDone done = std::move(ended->second);
  ended_.erase(ended);
  return done;
}

// ---------------------------------------------------------------- calls

void PushPullCore::TakeActions(SessionActions& done, Instant now, Actions* actions) {
  for (const SendMessage& message : done.send) {
    std::shared_ptr<ClientCall> call = MakeCall(message, now);
    if (call->is_push()) {
      queue_.AddPush(std::move(call));
    } else if (queue_.AddPull(call)) {
      actions->start.push_back(std::move(call));
    }
  }
  for (OpDone& op : done.done) {
    payloads_.erase(op.op);
    actions->ended.push_back(op.op);
    ended_[op.op] = std::move(op);
  }
  for (const int server : done.ask_routing) Ask(server, now);
  actions->need_routing |= done.need_routing;
}

std::shared_ptr<ClientCall> PushPullCore::MakeCall(const SendMessage& message, Instant now) {
  auto call = std::make_shared<ClientCall>();
  call->message = message;
  call->transport = transports_[static_cast<size_t>(message.server)];
  call->transfer = call->transport->NewTransfer(message.request.kind);
  call->payload = payloads_.at(message.op);
  KnownKeyLists& known =
      known_lists_.try_emplace(call->transport, options_.key_lists).first->second;
  call->forms = known.Forms(message, *call->payload.keys);
  call->sizes = ValueSizes(message, options_.formats, *call->payload.keys, call->forms);
  if (call->transport->WantsOffer(now)) queue_.AddOffer(call->transport);
  return call;
}

void PushPullCore::Ask(int server, Instant now) {
  const auto index = static_cast<size_t>(server);
  const CallQueue::Question question{.server = routing_.servers[index],
                                     .transport = transports_[index]};
  if (question.transport->HasMoved()) session_.Heard(question.server, now);
  queue_.AddQuestion(question);
}

void PushPullCore::BeginRead(ClientCall& call) {
  call.reading = true;
  ++readers_[call.message.op];
}

void PushPullCore::EndRead(ClientCall& call) {
  call.reading = false;
  const auto readers = readers_.find(call.message.op);
  if (--readers->second == 0) readers_.erase(readers);
}

bool PushPullCore::IsRead(std::optional<OpId> op) const {
  return op.has_value() ? readers_.contains(*op) : !readers_.empty();
}

void PushPullCore::CancelReaders(std::optional<OpId> op) const {
  for (const std::shared_ptr<ClientCall>& call : queue_.calls()) {
    if (call->reading && call->message.op == op.value_or(call->message.op))
      call->transfer->Cancel();
  }
}

absl::Status PushPullCore::LearnLists(const ClientCall& call, const DecodedReply& reply) {
  KnownKeyLists& known = known_lists_.at(call.transport);
  const auto named = std::count(call.forms.begin(), call.forms.end(), KeyForm::kName);
  if (!reply.unknown_key_list) {
    named_lists_ += named;
    known.Answered(call.message, *call.payload.keys, call.forms);
    return absl::OkStatus();
  }
  ++unknown_lists_;
  known.Forget(call.message, *call.payload.keys, call.forms);
  if (named > 0) return absl::OkStatus();
  return absl::InternalError("does not know a key list, in answer to a message that names none");
}

bool PushPullCore::OnReply(const std::shared_ptr<ClientCall>& call, const absl::Status& status,
                           const absl::StatusOr<DecodedReply>& reply, Instant now,
                           Actions* actions) {
  absl::Status outcome = status.ok() ? reply.status() : status;
  const bool expected = IsExpected(*call);
  if (call->reading) {
    EndRead(*call);
    // The answer was broken off or cannot be read; or another message has made the operation fail
    // while this one was being read.
    if (!outcome.ok() || !expected) session_.ForgetHeld(call->message);
  }
  if (expected) {
    static const DecodedReply kNothing;
    const DecodedReply& decoded = outcome.ok() ? *reply : kNothing;
    if (outcome.ok()) outcome = LearnLists(*call, decoded);
    SessionActions done;
    session_.OnReply(call->message.message, outcome, decoded.shards, decoded.waiting, now, &done);
    queue_.Remove(call);
    TakeActions(done, now, actions);
  } else {
    queue_.Remove(call);
  }
  return expected && outcome.ok();
}

void PushPullCore::Drop(const std::shared_ptr<ClientCall>& call) {
  if (call->reading) EndRead(*call);
  queue_.Remove(call);
}

}  // namespace capstan::worker
