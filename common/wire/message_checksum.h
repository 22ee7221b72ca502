// A checksum of a protobuf message, in a field of it: CRC-32C of the message's bytes without that
// field, as this program serializes them. So it covers what the message says, not how it travelled.
// A sender may be newer and set fields that the receiver does not know, which are covered as well:
// protobuf serializes known fields by their numbers and those that are unknown behind them, so that
// the order is the sender's as long as new fields get higher numbers than the others of their
// message, but for the checksum's.
//
//   Seal(&message);                              // sets its field `checksum`
//   CAPSTAN_RETURN_IF_ERROR(CheckSeal(message, "install"));
//
// Large fields are read where they lie: nothing is copied and no memory is taken.
// Thread safety: functions without state.
#ifndef CAPSTAN_COMMON_WIRE_MESSAGE_CHECKSUM_H_
#define CAPSTAN_COMMON_WIRE_MESSAGE_CHECKSUM_H_

#include <google/protobuf/message.h>

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace capstan {

// The sum of the message but for the last `skipped` bytes of the fields that are known.
uint32_t ChecksumOf(const google::protobuf::Message& message, size_t skipped);

// Errors: kDataLoss  they differ; names both.
absl::Status CompareChecksums(absl::string_view what, uint32_t computed, uint32_t expected);

absl::Status MissingChecksum(absl::string_view what);

// Bytes of the checksum's field: a fixed32 with a field number below 16, higher than those of all
// other fields that are known, so that it comes last of them.
inline constexpr size_t kChecksumFieldBytes = 5;

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
