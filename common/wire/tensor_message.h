// Messages of the data plane with their values beside them, so that no tensor is copied into or
// out of a protobuf.
//
//   PushMessage push{.head = ..., .values = {cord of shard 0, cord of shard 1}};
//   const absl::Cord payload = Encode(push);            // of a frame: common/net/frame/frame.h
//   absl::StatusOr<PushMessage> decoded = DecodePush(payload);
//
// A payload is one small head and raw values; numbers are little-endian:
//
//   byte  0           4         8              8 + 4n        8 + 4n + head bytes
//         head bytes  n values  bytes of each  the protobuf  values, one behind another
//
// The protobuf is `head`, whose own field of values stays empty. A Cord of values shares the memory
// that it was made of. A message without values (v1::PullRequest, v1::PushResponse) is a protobuf
// only. Over gRPC all of them are ordinary protobufs: Attach and Detach.
// Thread safety: functions without state; values are values.
#ifndef CAPSTAN_COMMON_WIRE_TENSOR_MESSAGE_H_
#define CAPSTAN_COMMON_WIRE_TENSOR_MESSAGE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/cord.h"
#include "absl/strings/string_view.h"
#include "proto/parameter_server.pb.h"

namespace capstan {

// Most entries of each list of a message. In messages from the network they are counted before they
// are parsed: each takes some hundred bytes of memory, but perhaps only two of the message.
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

// REQUIRES: as many values as shards.
absl::Cord Encode(const PushMessage& message);
absl::Cord Encode(const PullAnswer& answer);

// The head of a payload, in front of its protobuf.
struct PayloadStart {
  uint32_t head_bytes = 0;      // The protobuf has so many.
  std::vector<uint32_t> sizes;  // Each value has so many bytes.

  size_t bytes() const { return 8 + sizes.size() * sizeof(uint32_t); }
  size_t values_begin() const { return bytes() + head_bytes; }
};
// `come`: the beginning of a payload. Nothing: more of it has to come. Errors: kInvalidArgument  it
// says that there are more than kShardsPerMessageMax values.
absl::StatusOr<std::optional<PayloadStart>> ReadPayloadStart(absl::string_view come);

// Errors: kInvalidArgument  these bytes are no such message, one of more than kShardsPerMessageMax
// entries, or one with values in its head; says what is wrong with them.
absl::StatusOr<PushMessage> DecodePush(const absl::Cord& payload);
absl::StatusOr<PullAnswer> DecodePullAnswer(const absl::Cord& payload);

// Parse protobufs from the network. Errors: as above; kUnavailable  the message has a checksum that
// is wrong: it was damaged on its way.
absl::StatusOr<v1::PushRequest> ParsePush(const absl::Cord& bytes);
absl::StatusOr<v1::PullRequest> ParsePull(const absl::Cord& bytes);
absl::Status CheckIfSealed(const v1::PushResponse& response);  // kUnavailable only.
absl::Status CheckIfSealed(const v1::PullResponse& response);

// Between whole protobufs and those with their values beside them. Attach copies the values.
PushMessage Detach(v1::PushRequest request);
PullAnswer Detach(v1::PullResponse response);
v1::PushRequest Attach(PushMessage message);
v1::PullResponse Attach(PullAnswer answer);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_WIRE_TENSOR_MESSAGE_H_
