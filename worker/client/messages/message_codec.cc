#include "worker/client/messages/message_codec.h"

#include <cstdint>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/sparse/wanted_keys.h"
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

// The keys of a batch that are in this shard; empty for dense tables.
absl::Span<const uint64_t> KeysIn(const TableKeys& keys, const SendMessage::Shard& shard) {
  if (keys.batch == nullptr) return {};
  const Range part = keys.batch->InBucket(shard.elements.begin);
  return absl::MakeConstSpan(keys.batch->keys)
      .subspan(static_cast<size_t>(part.begin), static_cast<size_t>(part.size()));
}
// The bytes of keys as messages carry them.
absl::string_view BytesOf(absl::Span<const uint64_t> keys) {
  return {reinterpret_cast<const char*>(keys.data()), keys.size() * sizeof(uint64_t)};
}

KeyForm FormIn(KeyForms forms, size_t shard) {
  return shard < forms.size() ? forms[shard] : KeyForm::kKeys;
}

// REQUIRES: the shard's keys have a name.
void EncodeName(const TableKeys& keys, const SendMessage::Shard& shard, v1::KeyListName* encoded) {
  const KeyListName& name = keys.batch->names[static_cast<size_t>(shard.elements.begin)];
  encoded->set_low(name.low);
  encoded->set_high(name.high);
  encoded->set_count(name.count);
}

// The reply of a server that has done nothing: no shard is ready.
DecodedReply UnknownKeyList(const SendMessage& message) {
  DecodedReply reply{.unknown_key_list = true};
  reply.shards.assign(message.shards.size(), {.outcome = ShardReply::Outcome::kNotReady});
  return reply;
}

// The elements of `part` of a table, lent; the cord keeps their owner alive.
template <typename Number>
absl::Cord Lent(absl::Span<const Number> table, const Range& part,
                const std::shared_ptr<const void>& owner) {
  return absl::MakeCordFromExternal({reinterpret_cast<const char*>(table.data() + part.begin),
                                     static_cast<size_t>(part.size()) * sizeof(Number)},
                                    [owner] {});
}

const std::vector<uint16_t>& HalvesOf(const HalfArrays& halves, const SendMessage::Shard& shard) {
  return halves[static_cast<size_t>(shard.key.table.value())];
}

// A shard's values as a message carries them; `with_keys`: behind their keys.
absl::Cord ValuesOf(const PushArrays& arrays, const SendMessage::Shard& shard, NumberFormat format,
                    const AllTableKeys& all_keys, bool with_keys) {
  const Range part = PartOf(shard, all_keys);
  if (part.empty()) return {};
  absl::Cord encoded;
  if (const TableKeys keys = KeysOf(shard, all_keys); with_keys && keys.batch != nullptr) {
    encoded = absl::MakeCordFromExternal(BytesOf(KeysIn(keys, shard)), [batch = keys.batch] {});
  }
  const absl::Span<const float> table = arrays.Of(shard.key.table);
  if (format == NumberFormat::kFp32) {
    encoded.Append(Lent(table, part, arrays.owner));
    return encoded;
  }
  encoded.Append(EncodedNumbers(
      format, table.subspan(static_cast<size_t>(part.begin), static_cast<size_t>(part.size()))));
  return encoded;
}

// The number of a shard's values in a message.
int64_t ElementsIn(const SendMessage& message, const SendMessage::Shard& shard,
                   const AllTableKeys& all_keys) {
  const TableKeys keys = KeysOf(shard, all_keys);
  if (message.request.kind == OpKind::kPush || keys.wanted == nullptr) {
    return PartOf(shard, all_keys).size();
  }
  return std::ssize(keys.wanted->InBucket(shard.elements.begin)) * keys.dim;
}

// Copies values to their places.
void TakeValues(const WireValues& values, const SendMessage::Shard& shard,
                const AllTableKeys& all_keys, const PullArrays& destination) {
  const TableKeys keys = KeysOf(shard, all_keys);
  float* const table = destination.FloatsOf(shard.key.table).data();
  if (keys.wanted == nullptr) return values.CopyTo(table + PartOf(shard, all_keys).begin);
  values.CopyRowsTo(keys.wanted->InBucket(shard.elements.begin), keys.dim, table);
}

// The place to which a shard's values are copied unconverted. Null: they go to the fp32 array.
struct HalfPlace {
  char* to = nullptr;
  NumberFormat format = NumberFormat::kFp32;
};

// `elements`: the number of values that were asked for.
absl::StatusOr<ShardReply> DecodeShard(const SendMessage::Shard& shard, const v1::ShardValues& head,
                                       const absl::Cord& values, int64_t elements,
                                       const AllTableKeys& keys, const PullArrays& destination,
                                       HalfPlace half) {
  ShardReply reply{.version = Version(head.version()),
                   .staleness = head.staleness(),
                   .membership = Generation(head.membership())};
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
  const auto expected = static_cast<size_t>(elements * BytesOf(*format));
  if (values.size() != expected) {
    return absl::InternalError(absl::StrCat("shard ", shard.key.shard.value(), " came with ",
                                            values.size(), " bytes, expected ", expected));
  }
  if (half.to == nullptr) {
    TakeValues(WireValues(values, *format), shard, keys, destination);
    return reply;
  }
  if (*format != half.format) {
    return absl::InternalError(absl::StrCat("shard ", shard.key.shard.value(), " came as ",
                                            v1::ValueType_Name(head.value_type()), ", expected ",
                                            v1::ValueType_Name(TypeOf(half.format))));
  }
  WireValues(values, *format).CopyBytesTo(half.to);
  return reply;
}

}  // namespace

NumberFormat FormatIn(const SendMessage& message, const SendMessage::Shard& shard,
                      const Formats& formats) {
  const auto table = static_cast<size_t>(shard.key.table.value());
  if (table >= formats.size() || message.request.snapshot) return NumberFormat::kFp32;
  return message.request.kind == OpKind::kPush ? formats[table].gradients
                                               : formats[table].parameters;
}

bool IsHalf(const SendMessage& message, const SendMessage::Shard& shard, const Formats& formats,
            const HalfArrays* halves) {
  const auto table = static_cast<size_t>(shard.key.table.value());
  return halves != nullptr && table < halves->size() && !(*halves)[table].empty() &&
         FormatIn(message, shard, formats) != NumberFormat::kFp32;
}

TableKeys KeysOf(const SendMessage::Shard& shard, const AllTableKeys& keys) {
  const auto table = static_cast<size_t>(shard.key.table.value());
  return table < keys.size() ? keys[table] : TableKeys();
}

Range PartOf(const SendMessage::Shard& shard, const AllTableKeys& keys) {
  const TableKeys of_table = KeysOf(shard, keys);
  if (of_table.batch == nullptr) return shard.elements;
  const Range part = of_table.batch->InBucket(shard.elements.begin);
  return {.begin = part.begin * of_table.dim, .end = part.end * of_table.dim};
}

std::vector<int64_t> ValueSizes(const SendMessage& message, const Formats& formats,
                                const AllTableKeys& keys, KeyForms forms) {
  std::vector<int64_t> sizes;
  for (const SendMessage::Shard& shard : message.shards) {
    const bool with_keys = FormIn(forms, sizes.size()) != KeyForm::kName;
    int64_t bytes = ElementsIn(message, shard, keys) * BytesOf(FormatIn(message, shard, formats));
    if (message.request.kind == OpKind::kPush && with_keys) {
      bytes += static_cast<int64_t>(BytesOf(KeysIn(KeysOf(shard, keys), shard)).size());
    }
    sizes.push_back(bytes);
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
    routing.servers.push_back(server.node_id());
    routing.addresses.push_back(server.address());
    routing.incarnations.emplace_back(server.incarnation());
  }
  return routing;
}

PushMessage EncodePush(const CallerId& caller, const SendMessage& message,
                       const PushArrays& gradient, const Formats& formats, const AllTableKeys& keys,
                       KeyForms forms, const std::shared_ptr<const HalfArrays>& halves) {
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
    const bool named = FormIn(forms, encoded.values.size()) == KeyForm::kName;
    if (named) EncodeName(KeysOf(shard, keys), shard, push->mutable_key_list());
    encoded.values.push_back(IsHalf(message, shard, formats, halves.get())
                                 ? Lent<uint16_t>(HalvesOf(*halves, shard), shard.elements, halves)
                                 : ValuesOf(gradient, shard, format, keys, !named));
  }
  return encoded;
}

void EncodePull(const CallerId& caller, const SendMessage& message, absl::Duration wait_limit,
                v1::PullRequest* request, const Formats& formats, const AllTableKeys& all_keys,
                KeyForms forms) {
  EncodeCaller(caller, message, request->mutable_caller());
  request->set_iteration(message.request.iteration.value());
  request->set_snapshot(message.request.snapshot);
  request->set_wait_limit_ms(static_cast<int32_t>(absl::ToInt64Milliseconds(wait_limit)));
  for (const SendMessage::Shard& shard : message.shards) {
    const KeyForm form = FormIn(forms, static_cast<size_t>(request->shards_size()));
    v1::ShardPull* pull = request->add_shards();
    pull->set_table(shard.key.table.value());
    pull->set_shard(shard.key.shard.value());
    const TableKeys keys = KeysOf(shard, all_keys);
    // The array of a sparse table holds the rows of the previous pull, so no version is held.
    pull->set_held_version(keys.batch == nullptr ? shard.held_version : -1);
    if (form != KeyForm::kName) pull->set_keys(std::string(BytesOf(KeysIn(keys, shard))));
    if (form != KeyForm::kKeys) EncodeName(keys, shard, pull->mutable_key_list());
    if (keys.wanted != nullptr) {
      const int64_t bucket = shard.elements.begin;
      pull->set_wanted(WantedBits(keys.batch->InBucket(bucket), keys.wanted->InBucket(bucket)));
    }
    pull->set_value_type(TypeOf(FormatIn(message, shard, formats)));
  }
}

absl::StatusOr<DecodedReply> DecodePush(const SendMessage& message,
                                        const v1::PushResponse& response) {
  if (response.unknown_key_list()) return UnknownKeyList(message);
  CAPSTAN_RETURN_IF_ERROR(CheckCount(message, response.shards_size()));
  DecodedReply reply;
  for (const v1::ShardPushResult& result : response.shards()) {
    reply.shards.push_back({.version = Version(result.version())});
  }
  return reply;
}

absl::StatusOr<DecodedReply> DecodePull(const SendMessage& message, const PullAnswer& answer,
                                        const PullArrays& destination, const AllTableKeys& keys,
                                        const Formats& formats) {
  const v1::PullResponse& response = answer.head;
  if (response.unknown_key_list()) return UnknownKeyList(message);
  CAPSTAN_RETURN_IF_ERROR(CheckCount(message, response.shards_size()));
  DecodedReply reply;
  for (size_t i = 0; i < message.shards.size(); ++i) {
    const SendMessage::Shard& asked = message.shards[i];
    HalfPlace half;
    if (IsHalf(message, asked, formats, destination.halves)) {
      half = {.to = destination.PlaceOf(asked.key.table, asked.elements.begin, /*half=*/true),
              .format = FormatIn(message, asked, formats)};
    }
    CAPSTAN_ASSIGN_OR_RETURN(
        ShardReply shard, DecodeShard(asked, response.shards(static_cast<int>(i)), answer.values[i],
                                      ElementsIn(message, asked, keys), keys, destination, half));
    reply.shards.push_back(shard);
  }
  for (const v1::WaitingOn& w : response.waiting_on()) {
    reply.waiting.push_back({.shard = {TableId(w.table()), ShardId(w.shard())},
                             .iteration = Iteration(w.iteration()),
                             .ranks = {w.ranks().begin(), w.ranks().end()},
                             .slots = {w.slots().begin(), w.slots().end()}});
  }
  return reply;
}

}  // namespace capstan::worker
