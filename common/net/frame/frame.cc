#include "common/net/frame/frame.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/planted/planted_bug.h"
#include "common/status/status_macros.h"
#include "common/storage/little_endian.h"
#include "common/types/message_limits.h"

namespace capstan {
namespace {

constexpr size_t kFlagsAt = 2, kLengthAt = 4, kCallAt = 8, kSumAt = 16;

template <typename Number>
void Put(Number number, char* at) {
  for (size_t i = 0; i < sizeof(Number); ++i) at[i] = static_cast<char>(number >> (8 * i));
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

uint32_t HeadSum(absl::string_view head) { return Crc32cOf(head.substr(0, kSumAt)); }

absl::Status Damaged(absl::string_view what, uint32_t computed, uint32_t found) {
  return absl::DataLossError(absl::StrCat(
      what, absl::StrFormat(" with the checksum %08x, expected %08x: it was damaged on its way",
                            computed, found)));
}

}  // namespace

std::array<char, kFrameHeadBytes> EncodeFrameHead(const FrameHead& head) {
  std::array<char, kFrameHeadBytes> bytes{};
  bytes[0] = static_cast<char>(head.kind);
  bytes[1] = static_cast<char>(head.what);
  Put(head.length, &bytes[kLengthAt]);
  Put(head.call, &bytes[kCallAt]);
  Put(HeadSum({bytes.data(), bytes.size()}), &bytes[kSumAt]);
  return bytes;
}

absl::Status CheckMessageBytes(absl::string_view what, size_t bytes) {
  if (bytes <= static_cast<size_t>(kMessageBytesMax)) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat(what, " of ", bytes, " bytes, expected at most ", kMessageBytesMax));
}

absl::StatusOr<FrameHead> DecodeFrameHead(absl::string_view bytes) {
  const auto sum = GetLittleEndian<uint32_t>(bytes, kSumAt);
  if (HeadSum(bytes) != sum && !Planted(PlantedBug::kIgnoreFrameChecksum)) {
    return Damaged("a frame's head", HeadSum(bytes), sum);
  }
  const auto kind = GetLittleEndian<uint8_t>(bytes, 0);
  const auto flags = GetLittleEndian<uint16_t>(bytes, kFlagsAt);
  if (kind < static_cast<uint8_t>(FrameKind::kRequest) ||
      kind > static_cast<uint8_t>(FrameKind::kPong)) {
    return absl::InvalidArgumentError(absl::StrCat("a frame of kind ", kind, ", expected 1 to 6"));
  }
  if (flags != 0) {
    return absl::InvalidArgumentError(absl::StrCat("a frame with flags ", flags, ", expected 0"));
  }
  const FrameHead head{.kind = static_cast<FrameKind>(kind),
                       .what = GetLittleEndian<uint8_t>(bytes, 1),
                       .call = GetLittleEndian<uint64_t>(bytes, kCallAt),
                       .length = GetLittleEndian<uint32_t>(bytes, kLengthAt)};
  if (head.length <= LengthMax(head.kind)) return head;
  return absl::InvalidArgumentError(absl::StrCat("a frame of kind ", kind, " with ", head.length,
                                                 " bytes, expected at most ",
                                                 LengthMax(head.kind)));
}

FrameSum::FrameSum(absl::string_view head) { Add(head.substr(0, kSumAt)); }

void FrameSum::Add(absl::string_view bytes) {
  if (!Planted(PlantedBug::kIgnoreFrameChecksum)) crc_.Add(bytes);
}

std::array<char, kFrameSumBytes> FrameSum::Encode() const {
  std::array<char, kFrameSumBytes> bytes;
  Put(crc_.value(), bytes.data());
  return bytes;
}

absl::Status FrameSum::Check(const FrameHead& head, absl::string_view found) const {
  const auto sum = GetLittleEndian<uint32_t>(found, 0);
  if (sum == crc_.value() || Planted(PlantedBug::kIgnoreFrameChecksum)) return absl::OkStatus();
  return Damaged(absl::StrCat("a frame of kind ", static_cast<int>(head.kind), ", call ", head.call,
                              ", of ", head.length, " bytes"),
                 crc_.value(), sum);
}

FrameHead ErrorHead(uint64_t call, const absl::Status& status) {
  return {.kind = FrameKind::kError, .what = static_cast<uint8_t>(status.code()), .call = call};
}

std::string ErrorText(const absl::Status& status) {
  return std::string(status.message().substr(0, kErrorBytesMax));
}

absl::Status ErrorOf(const FrameHead& head, const std::string& text) {
  const bool known = head.what > 0 && head.what <= uint8_t{16};  // gRPC's codes are 1 to 16.
  return {known ? static_cast<absl::StatusCode>(head.what) : absl::StatusCode::kUnknown, text};
}

bool SameToken(absl::string_view a, absl::string_view b) {
  if (a.size() != b.size()) return false;
  unsigned difference = 0;
  for (size_t i = 0; i < a.size(); ++i) difference |= static_cast<unsigned>(a[i] ^ b[i]);
  return difference == 0;
}

}  // namespace capstan
