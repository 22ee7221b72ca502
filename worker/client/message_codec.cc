#include "worker/client/message_codec.h"

#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "common/wire/wire_values.h"

namespace capstan::worker {
namespace {

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

void EncodeCaller(const CallerId& id, const SendMessage& message, v1::Caller* caller) {
  caller->set_job_id(id.job);
  caller->set_rank(id.rank.value());
  caller->set_incarnation(id.incarnation.value());
  caller->set_routing_generation(message.generation.value());
}

absl::Status CheckCount(const SendMessage& message, int count) {
  if (count == static_cast<int>(message.shards.size())) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat("answered ", count, " shards, expected ", message.shards.size()));
}

// Of a shard's values in a message.
NumberFormat FormatIn(const SendMessage& message, const SendMessage::Shard& shard,
                      const Formats& formats) {
  const auto table = static_cast<size_t>(shard.key.table.value());
  if (table >= formats.size() || message.request.snapshot) return NumberFormat::kFp32;
  return message.request.kind == OpKind::kPush ? formats[table].gradients
                                               : formats[table].parameters;
}

absl::Cord ValuesOf(const std::shared_ptr<const TableArrays>& arrays,
                    const SendMessage::Shard& shard, NumberFormat format) {
  const auto count = static_cast<size_t>(shard.elements.size());
  if (count == 0) return {};
  const float* values =
      (*arrays)[static_cast<size_t>(shard.key.table.value())].data() + shard.elements.begin;
  if (format == NumberFormat::kFp32) {
    return absl::MakeCordFromExternal(
        {reinterpret_cast<const char*>(values), count * sizeof(float)}, [arrays] {});
  }
  return EncodedNumbers(format, {values, count});
}

absl::StatusOr<ShardReply> DecodeShard(const SendMessage::Shard& shard, const v1::ShardValues& head,
                                       const absl::Cord& values, TableArrays* destination) {
  ShardReply reply{.version = Version(head.version()), .staleness = head.staleness()};
  switch (head.outcome()) {
    case v1::ShardValues::NOT_READY:
      reply.outcome = ShardReply::Outcome::kNotReady;
      return reply;
    case v1::ShardValues::PAST:
      reply.outcome = ShardReply::Outcome::kPast;
      return reply;
    case v1::ShardValues::UNCHANGED:
      return reply;
    case v1::ShardValues::VALUES:
      break;
    default:
      return absl::InternalError(absl::StrCat("shard ", shard.key.shard.value(),
                                              " came with outcome ",
                                              static_cast<int>(head.outcome())));
  }
  const absl::StatusOr<NumberFormat> format = FormatOf(head.value_type());
  if (!format.ok()) return absl::InternalError(format.status().message());
  const auto expected = static_cast<size_t>(shard.elements.size() * BytesOf(*format));
  if (values.size() != expected) {
    return absl::InternalError(absl::StrCat("shard ", shard.key.shard.value(), " came with ",
                                            values.size(), " bytes, expected ", expected));
  }
  WireValues(values, *format)
      .CopyTo((*destination)[static_cast<size_t>(shard.key.table.value())].data() +
              shard.elements.begin);
  return reply;
}

}  // namespace

std::vector<int64_t> ValueSizes(const SendMessage& message, const Formats& formats) {
  std::vector<int64_t> sizes;
  for (const SendMessage::Shard& shard : message.shards) {
    sizes.push_back(shard.elements.size() * BytesOf(FormatIn(message, shard, formats)));
  }
  return sizes;
}

absl::StatusOr<Routing> DecodeRouting(const v1::RoutingTable& table) {
  CAPSTAN_RETURN_IF_ERROR(CheckRouting(table));
  Routing routing;
  routing.generation = Generation(table.generation());
  for (const v1::ShardRoute& shard : table.shards()) {
    routing.shards.push_back({.key = {TableId(shard.table()), ShardId(shard.shard())},
                              .elements = {shard.element_begin(), shard.element_end()},
                              .server = shard.server(),
                              .term = Term(shard.term())});
  }
  for (const v1::ServerAddress& server : table.servers()) {
    routing.servers.push_back(absl::StrCat(server.node_id(), " (", server.address(), ")"));
    routing.incarnations.emplace_back(server.incarnation());
  }
  return routing;
}

PushMessage EncodePush(const CallerId& caller, const SendMessage& message,
                       const std::shared_ptr<const TableArrays>& gradient, const Formats& formats) {
  PushMessage encoded;
  v1::PushRequest& request = encoded.head;
  EncodeCaller(caller, message, request.mutable_caller());
  request.set_iteration(message.request.iteration.value());
  request.set_slot_begin(static_cast<int32_t>(message.request.slots.begin));
  request.set_slot_end(static_cast<int32_t>(message.request.slots.end));
  for (const SendMessage::Shard& shard : message.shards) {
    v1::ShardPush* push = request.add_shards();
    push->set_table(shard.key.table.value());
    push->set_shard(shard.key.shard.value());
    push->set_sequence(shard.sequence.value());
    push->set_sequence_low_water(shard.sequence_low_water.value());
    const NumberFormat format = FormatIn(message, shard, formats);
    push->set_value_type(TypeOf(format));
    encoded.values.push_back(ValuesOf(gradient, shard, format));
  }
  return encoded;
}

void EncodePull(const CallerId& caller, const SendMessage& message, absl::Duration wait_limit,
                v1::PullRequest* request, const Formats& formats) {
  EncodeCaller(caller, message, request->mutable_caller());
  request->set_iteration(message.request.iteration.value());
  request->set_snapshot(message.request.snapshot);
  request->set_wait_limit_ms(static_cast<int32_t>(absl::ToInt64Milliseconds(wait_limit)));
  for (const SendMessage::Shard& shard : message.shards) {
    v1::ShardPull* pull = request->add_shards();
    pull->set_table(shard.key.table.value());
    pull->set_shard(shard.key.shard.value());
    pull->set_held_version(shard.held_version);
    pull->set_value_type(TypeOf(FormatIn(message, shard, formats)));
  }
}

absl::StatusOr<DecodedReply> DecodePush(const SendMessage& message,
                                        const v1::PushResponse& response) {
  CAPSTAN_RETURN_IF_ERROR(CheckCount(message, response.shards_size()));
  DecodedReply reply;
  for (const v1::ShardPushResult& result : response.shards()) {
    reply.shards.push_back({.version = Version(result.version())});
  }
  return reply;
}

absl::StatusOr<DecodedReply> DecodePull(const SendMessage& message, const PullAnswer& answer,
                                        TableArrays* destination) {
  const v1::PullResponse& response = answer.head;
  CAPSTAN_RETURN_IF_ERROR(CheckCount(message, response.shards_size()));
  DecodedReply reply;
  for (size_t i = 0; i < message.shards.size(); ++i) {
    CAPSTAN_ASSIGN_OR_RETURN(ShardReply shard,
                             DecodeShard(message.shards[i], response.shards(static_cast<int>(i)),
                                         answer.values[i], destination));
    reply.shards.push_back(shard);
  }
  for (const v1::WaitingFor& w : response.waiting_for()) {
    reply.waiting.push_back({.shard = {TableId(w.table()), ShardId(w.shard())},
                             .iteration = Iteration(w.iteration()),
                             .ranks = {w.ranks().begin(), w.ranks().end()},
                             .slots = {w.slots().begin(), w.slots().end()}});
  }
  return reply;
}

}  // namespace capstan::worker
