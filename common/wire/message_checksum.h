// A checksum of a protobuf message, in a field of it: CRC-32C of the message's bytes without that
// field, as this program serializes them. So it covers what the message says, not how it travelled,
// and sender and receiver need the same schema (a cluster has one protocol version).
//
//   Seal(&message);                              // sets its field `checksum`
//   CAPSTAN_RETURN_IF_ERROR(CheckSeal(message, "install"));
//
// Large fields are read where they lie: nothing is copied and no memory is taken.
// Thread safety: functions without state.
#ifndef CAPSTAN_COMMON_WIRE_MESSAGE_CHECKSUM_H_
#define CAPSTAN_COMMON_WIRE_MESSAGE_CHECKSUM_H_

#include <google/protobuf/message_lite.h>

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace capstan {

// The sum of the message but for its last `without` bytes.
uint32_t ChecksumOf(const google::protobuf::MessageLite& message, int64_t without);

// Errors: kDataLoss  they differ; names both.
absl::Status CompareChecksums(absl::string_view what, uint32_t computed, uint32_t expected);

absl::Status MissingChecksum(absl::string_view what);

// A fixed32 with a field number below 16, higher than those of all other fields: it comes last.
inline constexpr int64_t kChecksumFieldBytes = 5;

// REQUIRES: `checksum` is an optional field of that kind.
template <typename Message>
void Seal(Message* message) {
  message->clear_checksum();
  message->set_checksum(ChecksumOf(*message, 0));
}

// Errors: kDataLoss  the checksum is not there, or not that of the message; names `what`.
template <typename Message>
absl::Status CheckSeal(const Message& message, absl::string_view what) {
  static_assert(Message::kChecksumFieldNumber < 16);
  if (!message.has_checksum()) return MissingChecksum(what);
  return CompareChecksums(what, ChecksumOf(message, kChecksumFieldBytes), message.checksum());
}

}  // namespace capstan

#endif  // CAPSTAN_COMMON_WIRE_MESSAGE_CHECKSUM_H_
