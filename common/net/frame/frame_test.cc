#include "common/net/frame/frame.h"

#include <catch2/catch.hpp>
#include <string>

#include "common/net/frame/testing/whole_frame.h"
#include "common/storage/crc32c.h"
#include "common/testing/status_matchers.h"
#include "common/types/message_limits.h"

namespace capstan::frame_test {
namespace {

std::string Bytes(const FrameHead& head) {
  const auto bytes = EncodeFrameHead(head);
  return {bytes.begin(), bytes.end()};
}

// Returns the head with the checksum that belongs to it, whatever the head says.
std::string Summed(std::string head) {
  const uint32_t sum = Crc32cOf(head.substr(0, 16));
  for (size_t i = 0; i < kFrameSumBytes; ++i) head[16 + i] = static_cast<char>(sum >> (8 * i));
  return head;
}

TEST_CASE("Frame: a head is the same after encoding and decoding", "[net][frame]") {
  const FrameHead head{
      .kind = FrameKind::kError, .what = 14, .call = 0x0102030405060708, .length = 300};
  const std::string bytes = Bytes(head);
  CHECK(bytes.substr(0, 16) ==
        std::string("\x03\x0e\0\0\x2c\x01\0\0\x08\x07\x06\x05\x04\x03\x02\x01", 16));
  CHECK(bytes.size() == kFrameHeadBytes);
  REQUIRE_OK_AND_ASSIGN(const FrameHead decoded, DecodeFrameHead(bytes));
  CHECK(decoded.kind == head.kind);
  CHECK(decoded.what == head.what);
  CHECK(decoded.call == head.call);
  CHECK(decoded.length == head.length);
}

TEST_CASE("Frame: kinds, flags and lengths that cannot be are refused", "[net][frame]") {
  const auto code = absl::StatusCode::kInvalidArgument;
  std::string bytes = Bytes({.kind = FrameKind::kRequest});
  for (const char kind : {'\x00', '\x07', '\xff'}) {
    bytes[0] = kind;
    CHECK_STATUS(DecodeFrameHead(bytes), absl::StatusCode::kDataLoss,
                 "a frame's head with the checksum");
    CHECK_STATUS(DecodeFrameHead(Summed(bytes)), code, "expected 1 to 6");
  }
  bytes = Bytes({.kind = FrameKind::kRequest});
  bytes[3] = 1;
  CHECK_STATUS(DecodeFrameHead(Summed(bytes)), code, "with flags 256, expected 0");
  const uint32_t most = kMessageBytesMax;
  REQUIRE_OK(DecodeFrameHead(Bytes({.kind = FrameKind::kAnswer, .length = most})));
  CHECK_STATUS(DecodeFrameHead(Bytes({.kind = FrameKind::kAnswer, .length = most + 1})), code,
               "67108865 bytes, expected at most 67108864");
  CHECK_STATUS(DecodeFrameHead(Bytes({.kind = FrameKind::kRequest, .length = 0xffffffff})), code,
               "4294967295 bytes");
  CHECK_STATUS(DecodeFrameHead(Bytes({.kind = FrameKind::kError, .length = 65537})), code,
               "expected at most 65536");
  CHECK_STATUS(DecodeFrameHead(Bytes({.kind = FrameKind::kCancel, .length = 1})), code,
               "expected at most 0");
}

TEST_CASE("Frame: a whole frame is the same after encoding and decoding", "[net][frame]") {
  for (const std::string& payload : {std::string(), std::string("a"), std::string(100'000, 'x')}) {
    const std::string frame = EncodeFrame({.kind = FrameKind::kAnswer, .call = 3}, payload);
    REQUIRE_OK_AND_ASSIGN(const std::string decoded, DecodeFrame(frame));
    CHECK(decoded == payload);
    CHECK_STATUS(DecodeFrame(frame + "x"), absl::StatusCode::kInvalidArgument,
                 "behind its head, which says");
  }
  CHECK_STATUS(DecodeFrame("short"), absl::StatusCode::kInvalidArgument, "a frame of 5 bytes");
}

TEST_CASE("Frame: an error keeps its code and text", "[net][frame]") {
  const absl::Status status = absl::FailedPreconditionError("generation 3, expected 4");
  CHECK(ErrorOf(ErrorHead(7, status), ErrorText(status)) == status);
  CHECK(ErrorText(absl::InternalError(std::string(1 << 20, 'x'))).size() == kErrorBytesMax);
  FrameHead head = ErrorHead(7, status);
  for (const int what : {0, 17, 255}) {
    head.what = static_cast<uint8_t>(what);
    CHECK(ErrorOf(head, "").code() == absl::StatusCode::kUnknown);
  }
}

TEST_CASE("Frame: tokens are the same if all bytes are", "[net][frame]") {
  const std::string token(kTokenBytes, 'a');
  CHECK(SameToken(token, token));
  for (size_t i = 0; i < kTokenBytes; ++i) {
    std::string other = token;
    other[i] = 'b';
    CHECK_FALSE(SameToken(token, other));
  }
  CHECK_FALSE(SameToken(token, token.substr(1)));
}

}  // namespace
}  // namespace capstan::frame_test
