// Messages of the data plane with their values beside them: encoded and parsed by hand, so that no
// tensor is copied into or out of a protobuf.
//
//   PushMessage push{.head = ..., .values = {cord of shard 0, cord of shard 1}};
//   const absl::Cord bytes = Encode(push);           // what v1::PushRequest would be as bytes
//   absl::StatusOr<PushMessage> parsed = DecodePush(bytes);
//
// The bytes are those of the protobuf messages: any of protobuf's parsers reads them, and what it
// writes is read here. A Cord of values shares the memory that it was made of.
// Thread safety: functions without state; values are values.
#ifndef CAPSTAN_COMMON_WIRE_TENSOR_MESSAGE_H_
#define CAPSTAN_COMMON_WIRE_TENSOR_MESSAGE_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/cord.h"
#include "proto/parameter_server.pb.h"

namespace capstan {

// Entries that a message may have; those of messages from the network are counted before they are
// listed: each takes some hundred bytes of memory, and as few as two of the message.
inline constexpr int kShardsPerMessageMax = 16'384;

// Values of shards(i) are values[i]; the field of the same name in `head` is empty.
struct PushMessage {
  v1::PushRequest head;
  std::vector<absl::Cord> values;
};
struct PullAnswer {
  v1::PullResponse head;
  std::vector<absl::Cord> values;  // Empty where the shard's outcome is not VALUES.
};
struct PushPullMessage {
  PushMessage push;
  v1::PullRequest pull;
};
struct PushPullAnswer {
  v1::PushResponse push;
  PullAnswer pull;
};

// REQUIRES: as many values as shards.
absl::Cord Encode(const PushMessage& message);
absl::Cord Encode(const PullAnswer& answer);
absl::Cord Encode(const PushPullMessage& message);
absl::Cord Encode(const PushPullAnswer& answer);

// The message with its field `checksum`, for ways that have no checksum of their own.
absl::Cord Sealed(absl::Cord message);
// REQUIRES: the message has one. Errors: kUnavailable  it is not that of the bytes before it, which
// were damaged on their way; names both.
absl::Status CheckSealed(const absl::Cord& bytes, uint32_t checksum);

// A checksum that is there is checked (kUnavailable).
// Errors: kInvalidArgument  these bytes are no such message, or one of more than
// kShardsPerMessageMax entries; says where they go wrong.
absl::StatusOr<PushMessage> DecodePush(const absl::Cord& bytes);
absl::StatusOr<v1::PullRequest> DecodePullRequest(const absl::Cord& bytes);
absl::StatusOr<PullAnswer> DecodePullAnswer(const absl::Cord& bytes);
absl::StatusOr<PushPullMessage> DecodePushPull(const absl::Cord& bytes);
absl::StatusOr<PushPullAnswer> DecodePushPullAnswer(const absl::Cord& bytes);

// Whole protobuf messages. Detach shares the memory of `request`, which must outlive the result.
PushMessage Detach(const v1::PushRequest& request);
v1::PullResponse Attach(PullAnswer answer);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_WIRE_TENSOR_MESSAGE_H_
