#include "common/wire/tensor_message.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/message_lite.h>
#include <google/protobuf/wire_format_lite.h>

#include <bit>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "common/wire/cord_input_stream.h"
#include "common/wire/message_checksum.h"

namespace capstan {
namespace {

using google::protobuf::MessageLite;
using google::protobuf::internal::WireFormatLite;

static_assert(std::endian::native == std::endian::little, "numbers and values lie as they travel");

constexpr size_t kCountsBytes = 2 * sizeof(uint32_t);

absl::Status TooMany(int64_t entries) {
  return absl::InvalidArgumentError(
      absl::StrCat("a message of ", entries, " shards, expected at most ", kShardsPerMessageMax));
}

absl::Status NotA(const MessageLite& message) {
  return absl::InvalidArgumentError(
      absl::StrCat("the message is not a valid ", message.GetTypeName()));
}

absl::Cord Join(const MessageLite& head, const std::vector<absl::Cord>& values) {
  std::vector<uint32_t> numbers = {static_cast<uint32_t>(head.ByteSizeLong()),
                                   static_cast<uint32_t>(values.size())};
  for (const absl::Cord& each : values) numbers.push_back(static_cast<uint32_t>(each.size()));
  std::string start(reinterpret_cast<const char*>(numbers.data()),
                    numbers.size() * sizeof(uint32_t));
  head.AppendToString(&start);
  absl::Cord payload(std::move(start));
  for (const absl::Cord& each : values) payload.Append(each);
  return payload;
}

// Counts the entries before they are parsed, because the parser makes an object of each, however
// short it is.
absl::Status CountEntries(const absl::Cord& bytes, int field) {
  CordInputStream stream(bytes);
  google::protobuf::io::CodedInputStream in(&stream);
  int64_t entries = 0;
  for (uint32_t tag = in.ReadTag(); tag != 0; tag = in.ReadTag()) {
    if (WireFormatLite::GetTagFieldNumber(tag) == field) ++entries;
    if (!WireFormatLite::SkipField(&in, tag)) break;  // The parser reports the error.
  }
  return entries <= kShardsPerMessageMax ? absl::OkStatus() : TooMany(entries);
}

template <typename Message>
absl::StatusOr<Message> Parse(const absl::Cord& bytes) {
  Message message;
  CAPSTAN_RETURN_IF_ERROR(CountEntries(bytes, Message::kShardsFieldNumber));
  CordInputStream stream(bytes);
  if (!message.ParseFromZeroCopyStream(&stream)) return NotA(message);
  return message;
}

absl::Status Mismatch(const absl::Cord& payload, const PayloadStart& start) {
  size_t values = 0;
  for (const uint32_t size : start.sizes) values += size;
  if (start.values_begin() + values == payload.size()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "a payload of ", payload.size(), " bytes, expected ", start.bytes(), " for ",
      start.sizes.size(), " sizes, a head of ", start.head_bytes, " and values of ", values));
}

// Message is PushMessage or PullAnswer.
template <typename Message>
absl::StatusOr<Message> Split(const absl::Cord& payload) {
  constexpr size_t kStartMax = kCountsBytes + kShardsPerMessageMax * sizeof(uint32_t);
  const absl::string_view first = payload.empty() ? absl::string_view() : *payload.chunk_begin();
  CAPSTAN_ASSIGN_OR_RETURN(std::optional<PayloadStart> start, ReadPayloadStart(first));
  if (!start) {  // The start spans several chunks.
    CAPSTAN_ASSIGN_OR_RETURN(start, ReadPayloadStart(std::string(payload.Subcord(0, kStartMax))));
  }
  if (!start) return absl::InvalidArgumentError("a payload that ends before its values' sizes");
  CAPSTAN_RETURN_IF_ERROR(Mismatch(payload, *start));
  Message message;
  using Head = decltype(message.head);
  CAPSTAN_ASSIGN_OR_RETURN(message.head,
                           Parse<Head>(payload.Subcord(start->bytes(), start->head_bytes)));
  if (static_cast<size_t>(message.head.shards_size()) != start->sizes.size()) {
    return absl::InvalidArgumentError(absl::StrCat("a message of ", message.head.shards_size(),
                                                   " shards with ", start->sizes.size(),
                                                   " values, expected as many"));
  }
  size_t begin = start->values_begin();
  for (const uint32_t size : start->sizes) {
    message.values.push_back(payload.Subcord(begin, size));
    begin += size;
  }
  return message;
}

template <typename Message>
absl::Status CheckSum(const Message& message) {
  if (!message.has_checksum()) return absl::OkStatus();
  const absl::Status checked = CheckSeal(message, "a message");
  return checked.ok() ? checked : absl::UnavailableError(checked.message());
}

template <typename Message>
absl::StatusOr<Message> ParseSealed(const absl::Cord& bytes) {
  CAPSTAN_ASSIGN_OR_RETURN(Message message, Parse<Message>(bytes));
  CAPSTAN_RETURN_IF_ERROR(CheckSum(message));
  return message;
}

template <typename Message, typename Whole>
Message Apart(Whole whole) {
  Message message;
  for (auto& shard : *whole.mutable_shards()) {
    message.values.emplace_back(std::move(*shard.mutable_values()));
    shard.clear_values();
  }
  message.head = std::move(whole);
  return message;
}

template <typename Message>
auto Together(Message message) {
  for (size_t i = 0; i < message.values.size(); ++i) {
    if (message.values[i].empty()) continue;
    message.head.mutable_shards(static_cast<int>(i))->set_values(std::string(message.values[i]));
  }
  return std::move(message.head);
}

}  // namespace

absl::Cord Encode(const PushMessage& message) { return Join(message.head, message.values); }

absl::Cord Encode(const PullAnswer& answer) { return Join(answer.head, answer.values); }

absl::StatusOr<std::optional<PayloadStart>> ReadPayloadStart(absl::string_view come) {
  uint32_t counts[2];  // Bytes of the head, and number of values.
  if (come.size() < sizeof counts) return std::nullopt;
  std::memcpy(counts, come.data(), sizeof counts);
  if (counts[1] > kShardsPerMessageMax) return TooMany(counts[1]);
  come.remove_prefix(sizeof counts);
  PayloadStart start{.head_bytes = counts[0], .sizes = std::vector<uint32_t>(counts[1])};
  const size_t bytes = start.sizes.size() * sizeof(uint32_t);
  if (come.size() < bytes) return std::nullopt;
  if (bytes > 0) std::memcpy(start.sizes.data(), come.data(), bytes);
  return start;
}

absl::StatusOr<PushMessage> DecodePush(const absl::Cord& payload) {
  return Split<PushMessage>(payload);
}

absl::StatusOr<PullAnswer> DecodePullAnswer(const absl::Cord& payload) {
  return Split<PullAnswer>(payload);
}

absl::StatusOr<v1::PushRequest> ParsePush(const absl::Cord& bytes) {
  return ParseSealed<v1::PushRequest>(bytes);
}

absl::StatusOr<v1::PullRequest> ParsePull(const absl::Cord& bytes) {
  return ParseSealed<v1::PullRequest>(bytes);
}

absl::Status CheckIfSealed(const v1::PushResponse& response) { return CheckSum(response); }

absl::Status CheckIfSealed(const v1::PullResponse& response) { return CheckSum(response); }

PushMessage Detach(v1::PushRequest request) { return Apart<PushMessage>(std::move(request)); }

PullAnswer Detach(v1::PullResponse response) { return Apart<PullAnswer>(std::move(response)); }

v1::PushRequest Attach(PushMessage message) { return Together(std::move(message)); }

v1::PullResponse Attach(PullAnswer answer) { return Together(std::move(answer)); }

}  // namespace capstan
