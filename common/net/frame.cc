#include "common/net/frame.h"

#include "absl/strings/str_cat.h"
#include "common/net/channel.h"

namespace capstan {
namespace {

constexpr size_t kFlagsAt = 2, kLengthAt = 4, kCallAt = 8;

template <typename Number>
void Put(Number number, char* at) {
  for (size_t i = 0; i < sizeof(Number); ++i) at[i] = static_cast<char>(number >> (8 * i));
}

template <typename Number>
Number Get(absl::string_view bytes, size_t at) {
  uint64_t number = 0;
  for (size_t i = 0; i < sizeof(Number); ++i) {
    number |= uint64_t{static_cast<uint8_t>(bytes[at + i])} << (8 * i);
  }
  return static_cast<Number>(number);
}

uint32_t LengthMax(FrameKind kind) {
  switch (kind) {
    case FrameKind::kRequest:
    case FrameKind::kAnswer:
      return kMessageBytesMax;
    case FrameKind::kError:
      return kErrorBytesMax;
    default:
      return 0;
  }
}

}  // namespace

std::array<char, kFrameHeadBytes> EncodeFrameHead(const FrameHead& head) {
  std::array<char, kFrameHeadBytes> bytes{};
  bytes[0] = static_cast<char>(head.kind);
  bytes[1] = static_cast<char>(head.what);
  Put(head.length, &bytes[kLengthAt]);
  Put(head.call, &bytes[kCallAt]);
  return bytes;
}

absl::StatusOr<FrameHead> DecodeFrameHead(absl::string_view bytes) {
  const auto kind = Get<uint8_t>(bytes, 0);
  const auto flags = Get<uint16_t>(bytes, kFlagsAt);
  if (kind < static_cast<uint8_t>(FrameKind::kRequest) ||
      kind > static_cast<uint8_t>(FrameKind::kPong)) {
    return absl::InvalidArgumentError(absl::StrCat("a frame of kind ", kind, ", expected 1 to 6"));
  }
  if (flags != 0) {
    return absl::InvalidArgumentError(absl::StrCat("a frame with flags ", flags, ", expected 0"));
  }
  const FrameHead head{.kind = static_cast<FrameKind>(kind),
                       .what = Get<uint8_t>(bytes, 1),
                       .call = Get<uint64_t>(bytes, kCallAt),
                       .length = Get<uint32_t>(bytes, kLengthAt)};
  if (head.length <= LengthMax(head.kind)) return head;
  return absl::InvalidArgumentError(absl::StrCat("a frame of kind ", kind, " with ", head.length,
                                                 " bytes, expected at most ",
                                                 LengthMax(head.kind)));
}

FrameHead ErrorHead(uint64_t call, const absl::Status& status) {
  return {.kind = FrameKind::kError, .what = static_cast<uint8_t>(status.code()), .call = call};
}

std::string ErrorText(const absl::Status& status) {
  return std::string(status.message().substr(0, kErrorBytesMax));
}

absl::Status ErrorOf(const FrameHead& head, const std::string& text) {
  const bool known = head.what > 0 && head.what <= uint8_t{16};  // As gRPC numbers them.
  return {known ? static_cast<absl::StatusCode>(head.what) : absl::StatusCode::kUnknown, text};
}

bool SameToken(absl::string_view a, absl::string_view b) {
  if (a.size() != b.size()) return false;
  unsigned difference = 0;
  for (size_t i = 0; i < a.size(); ++i) difference |= static_cast<unsigned>(a[i] ^ b[i]);
  return difference == 0;
}

}  // namespace capstan
