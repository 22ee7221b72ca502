#include "common/wire/tensor_message.h"

#include <google/protobuf/message_lite.h>

#include <bit>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "common/wire/cord_input_stream.h"
#include "common/wire/message_checksum.h"
#include "common/wire/parsed_size.h"

namespace capstan {
namespace {

using google::protobuf::MessageLite;

static_assert(std::endian::native == std::endian::little, "numbers and values lie as they travel");

constexpr size_t kCountsBytes = 2 * sizeof(uint32_t);

// Limits of a message with everything in it: an entry has up to three messages, and a newer sender
// may have more; a pull that waits for many shards names the workers that each waits for.
constexpr int64_t kObjectsPerMessageMax = 8 * kShardsPerMessageMax;
constexpr int64_t kNumbersPerMessageMax = 1024 * kShardsPerMessageMax;

absl::Status TooMany(int64_t count, absl::string_view what, int64_t expected) {
  return absl::InvalidArgumentError(
      absl::StrCat("a message of ", count, " ", what, ", expected at most ", expected));
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

// Counts what is repeated before it is parsed, because the parser makes an object of each entry and
// of each field that it does not know, however short they are. Each takes two bytes or more, so a
// short message cannot have too many of anything.
template <typename Message>
absl::Status CheckCounts(const absl::Cord& bytes) {
  if (bytes.size() <= 2 * kShardsPerMessageMax) return absl::OkStatus();
  CordInputStream stream(bytes);
  const std::optional<ParsedSize> size = CountParsed(*Message::descriptor(), &stream);
  if (!size.has_value()) return NotA(Message::default_instance());
  if (size->entries > kShardsPerMessageMax) {
    return TooMany(size->entries, size->longest->name(), kShardsPerMessageMax);
  }
  if (size->objects > kObjectsPerMessageMax) {
    return TooMany(size->objects, "parts", kObjectsPerMessageMax);
  }
  if (size->numbers > kNumbersPerMessageMax) {
    return TooMany(size->numbers, "numbers", kNumbersPerMessageMax);
  }
  return absl::OkStatus();
}

template <typename Message>
absl::StatusOr<Message> Parse(const absl::Cord& bytes) {
  Message message;
  CAPSTAN_RETURN_IF_ERROR(CheckCounts<Message>(bytes));
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

// Values that lie in the head would be ignored, or take the place of those behind it.
template <typename Head>
absl::Status CheckHead(const Head& head, const PayloadStart& start) {
  if (static_cast<size_t>(head.shards_size()) != start.sizes.size()) {
    return absl::InvalidArgumentError(absl::StrCat("a message of ", head.shards_size(),
                                                   " shards with ", start.sizes.size(),
                                                   " values, expected as many"));
  }
  for (int i = 0; i < head.shards_size(); ++i) {
    const size_t bytes = head.shards(i).values().size();
    if (bytes == 0) continue;
    return absl::InvalidArgumentError(absl::StrCat("a message has ", bytes, " bytes of values of ",
                                                   "its shard ", i,
                                                   " in the head, expected all behind the head"));
  }
  return absl::OkStatus();
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
  CAPSTAN_RETURN_IF_ERROR(CheckHead(message.head, *start));
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
  if (counts[1] > kShardsPerMessageMax) {
    return TooMany(counts[1], "shards", kShardsPerMessageMax);
  }
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
