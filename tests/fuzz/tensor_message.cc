// Payloads of pushes and pulls to common/wire, as they are or with numbers in front that fit. What
// DecodePush and DecodePullAnswer accept is what the head's numbers and protobuf's own parser say
// it is, however the payload is torn, and encodes to the same message again; ParsePush and
// ParsePull accept what the parser does, and nothing whose checksum is wrong. A message that the
// generated code encodes and one with its values beside it are the same, both ways.
#include "common/wire/tensor_message.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/storage/little_endian.h"
#include "common/wire/message_checksum.h"
#include "proto/parameter_server.pb.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/target.h"

namespace capstan::fuzz {
namespace {

// REQUIRES: `bytes` outlive the result.
absl::Cord Torn(absl::string_view bytes, size_t piece) {
  absl::Cord torn;
  for (; !bytes.empty(); bytes.remove_prefix(std::min(piece, bytes.size()))) {
    torn.Append(absl::MakeCordFromExternal(bytes.substr(0, piece), [] {}));
  }
  return torn;
}

// The message in a payload, read by its layout and protobuf's parser. Nothing if it is malformed.
template <typename Message>
std::optional<Message> Reference(absl::string_view payload) {
  const absl::StatusOr<std::optional<PayloadStart>> start = ReadPayloadStart(payload);
  if (!start.ok() || !start->has_value()) return std::nullopt;
  size_t end = (*start)->values_begin();
  for (const uint32_t bytes : (*start)->sizes) end += bytes;
  if (end != payload.size()) return std::nullopt;
  Message message;
  const absl::string_view head = payload.substr((*start)->bytes(), (*start)->head_bytes);
  if (!message.head.ParseFromArray(head.data(), static_cast<int>(head.size())) ||
      message.head.shards_size() != static_cast<int>((*start)->sizes.size())) {
    return std::nullopt;
  }
  for (const auto& shard : message.head.shards()) {
    if (!shard.values().empty()) return std::nullopt;  // Values lie behind the head.
  }
  size_t begin = (*start)->values_begin();
  for (const uint32_t bytes : (*start)->sizes) {
    message.values.emplace_back(payload.substr(begin, bytes));
    begin += bytes;
  }
  return message;
}

template <typename Message>
bool Same(const Message& a, const Message& b) {
  return a.head.SerializeAsString() == b.head.SerializeAsString() && a.values == b.values;
}

template <typename Message, typename Decode>
void CheckPayload(absl::string_view payload, size_t piece, const Decode& decode) {
  const absl::StatusOr<Message> decoded = decode(Torn(payload, piece));
  const std::optional<Message> expected = Reference<Message>(payload);
  FUZZ_CHECK(decoded.ok() == expected.has_value());
  if (!decoded.ok()) {
    FUZZ_CHECK(absl::IsInvalidArgument(decoded.status()));
    return;
  }
  FUZZ_CHECK(Same(*decoded, *expected));
  const absl::StatusOr<Message> again = decode(Encode(*decoded));
  FUZZ_CHECK(again.ok() && Same(*again, *decoded));
  const std::string whole = Attach(*decoded).SerializeAsString();
  decltype(decoded->head) parsed;
  FUZZ_CHECK(parsed.ParseFromString(whole));
  FUZZ_CHECK(Same(Detach(std::move(parsed)), *decoded));
}

// The payload of a head and values whose sizes are Bytes of the input.
std::string MakePayload(Input& input) {
  std::string numbers, values;
  const uint8_t count = input.Byte() % 8;
  for (int i = 0; i < count; ++i) {
    const absl::string_view value = input.Take(input.Byte());
    PutLe32(static_cast<uint32_t>(value.size()), &numbers);
    absl::StrAppend(&values, value);
  }
  const absl::string_view head = input.Rest();
  std::string payload;
  PutLe32(static_cast<uint32_t>(head.size()), &payload);
  PutLe32(count, &payload);
  absl::StrAppend(&payload, numbers, head, values);
  return payload;
}

template <typename Message, typename Parse>
void CheckWhole(absl::string_view bytes, size_t piece, const Parse& parse) {
  const absl::StatusOr<Message> parsed = parse(Torn(bytes, piece));
  Message message;
  const bool whole = message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));
  const bool sealed = whole && message.has_checksum();
  if (!sealed) FUZZ_CHECK(parsed.ok() == whole);
  if (sealed && parsed.ok()) FUZZ_CHECK(CheckSeal(message, "a message").ok());
  if (!whole) return;
  if constexpr (std::is_same_v<Message, v1::PushRequest>) {
    const absl::StatusOr<PushMessage> decoded = DecodePush(Encode(Detach(message)));
    FUZZ_CHECK(decoded.ok());
    FUZZ_CHECK(Attach(*decoded).SerializeAsString() == message.SerializeAsString());
  }
  message.DiscardUnknownFields();  // They would come behind the checksum.
  Seal(&message);
  FUZZ_CHECK(parse(absl::Cord(message.SerializeAsString())).ok());
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Input input(data, size);
  const uint8_t what = input.Byte();
  const size_t piece = size_t{1} + input.Byte();
  const bool fits = what >= 128 && what % 4 < 2;
  const std::string bytes = fits ? MakePayload(input) : std::string(input.Rest());
  if (what % 4 == 0) CheckPayload<PushMessage>(bytes, piece, DecodePush);
  if (what % 4 == 1) CheckPayload<PullAnswer>(bytes, piece, DecodePullAnswer);
  if (what % 4 == 2) CheckWhole<v1::PushRequest>(bytes, piece, ParsePush);
  if (what % 4 == 3) CheckWhole<v1::PullRequest>(bytes, piece, ParsePull);
  return 0;
}

}  // namespace capstan::fuzz
