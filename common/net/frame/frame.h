// Frames: how calls with values travel on a data connection, beside gRPC.
//
// A connection begins with a greeting: the client's kGreeting, a token of 128 bits that the server
// has told it over gRPC, and its capability (common/security/capability.h) behind two bytes with
// its length, 0 if it has none; then the server's kGreeting. From then on frames go both ways, in
// any order; each is a head and a payload:
//
//   byte  0  1     2     4       8         16        20
//        kind what flags length  call id   head sum  payload: `length` bytes, payload sum
//
// Numbers are little-endian; flags are 0. The sums are CRC-32C, because TCP's 16 bits let about one
// damaged packet in 65,536 pass. The head's sum covers the first 16 bytes; the payload's sum covers
// these and the payload. The payload's sum is missing if there is no payload, and on an encrypted
// connection, whose records have tags of 128 bits. A frame counts once its sums are right; else its
// connection ends, so that its calls are repeated. (Shared memory has no sums: its bytes stay where
// the processor's own checks cover them.) The payload of an error is text. The payload of a request
// or an answer is a protobuf, with values behind it where there are some
// (common/wire/tensor_message.h). A client numbers its calls; a server answers each once, with an
// answer or an error, also after a cancel.
// Thread safety: functions without state; values.
#ifndef CAPSTAN_COMMON_NET_FRAME_FRAME_H_
#define CAPSTAN_COMMON_NET_FRAME_FRAME_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/storage/crc32c.h"

namespace capstan {

enum class FrameKind : uint8_t {
  kRequest = 1,  // `what` is a DataMethod.
  kAnswer = 2,
  kError = 3,   // `what` is an absl::StatusCode.
  kCancel = 4,  // Nobody waits for the call any more. No payload, here and below.
  kPing = 5,
  kPong = 6,
};

// Methods of v1::ParameterServer. Servers answer others with kUnimplemented.
enum class DataMethod : uint8_t { kPush = 1, kPull = 2, kReplicate = 4 };

struct FrameHead {
  FrameKind kind = FrameKind::kPing;
  uint8_t what = 0;
  uint64_t call = 0;
  // Bytes of the payload: at most kMessageBytesMax, of an error kErrorBytesMax.
  uint32_t length = 0;
};

inline constexpr size_t kFrameHeadBytes = 20;
inline constexpr size_t kFrameSumBytes = 4;
inline constexpr uint32_t kErrorBytesMax = 64 << 10;
inline constexpr char kGreeting[] = "CAPSTN5";  // 8 bytes with the zero at its end.
inline constexpr size_t kTokenBytes = 16;
inline constexpr size_t kGreetingLengthBytes = 2;

std::array<char, kFrameHeadBytes> EncodeFrameHead(const FrameHead& head);
// REQUIRES: kFrameHeadBytes bytes.
// Errors: kDataLoss         its sum is wrong; names both.
//         kInvalidArgument  an unknown kind, flags, or a length that the kind does not allow; names
//                           what was found and expected.
absl::StatusOr<FrameHead> DecodeFrameHead(absl::string_view bytes);

// Checks that a frame can carry `bytes` of payload. `what` begins the message: "a request".
// Errors: kResourceExhausted  more than kMessageBytesMax.
absl::Status CheckMessageBytes(absl::string_view what, size_t bytes);

// The sum of a payload that comes or goes piece by piece.
class FrameSum {
 public:
  FrameSum() = default;                       // The sum of no frame.
  explicit FrameSum(absl::string_view head);  // Its kFrameHeadBytes.
  void Add(absl::string_view bytes);          // Adds a part of the payload, in order.
  std::array<char, kFrameSumBytes> Encode() const;
  // Errors: kDataLoss  `found`, of kFrameSumBytes, is another one; names both, and the frame.
  absl::Status Check(const FrameHead& head, absl::string_view found) const;

 private:
  Crc32c crc_;
};

// The head and the payload of an error frame for a status that is not OK; and back. The text is cut
// to kErrorBytesMax. An unknown code becomes kUnknown.
FrameHead ErrorHead(uint64_t call, const absl::Status& status);
std::string ErrorText(const absl::Status& status);
absl::Status ErrorOf(const FrameHead& head, const std::string& text);

// Compares the two in a time that does not depend on where they differ.
bool SameToken(absl::string_view a, absl::string_view b);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_NET_FRAME_FRAME_H_
