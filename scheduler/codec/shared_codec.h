// Conversions that several messages share: failures, routing tables, checkpoint parts.
//
// Thread safety: pure functions.
#ifndef CAPSTAN_SCHEDULER_CODEC_SHARED_CODEC_H_
#define CAPSTAN_SCHEDULER_CODEC_SHARED_CODEC_H_

#include <string>

#include "absl/status/status.h"
#include "proto/parameter_server.pb.h"
#include "proto/scheduler.pb.h"
#include "scheduler/core/messages/messages.h"
#include "scheduler/core/messages/placement.h"

namespace capstan::scheduler {

// A reason that this program does not know becomes kInternal; a message is cut to 16 KiB.
Failure DecodeFailure(const v1::Failure& failure);
void EncodeFailure(const Failure& failure, v1::Failure& out);

void EncodeRouting(const Routing& routing, v1::RoutingTable& out);

CheckpointPart DecodePart(const v1::CheckpointPart& part);
void EncodePart(const CheckpointPart& part, v1::CheckpointPart& out);

// Returns the first `bytes_max` bytes of `text`, as UTF-8. The rest of a character that was cut
// becomes '?', because protobuf parsers refuse text that is not UTF-8.
std::string Cut(const std::string& text, size_t bytes_max);

// Errors: kFailedPrecondition  `version` is not this program's; names both versions.
absl::Status CheckProtocolVersion(v1::ProtocolVersion version);

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_CODEC_SHARED_CODEC_H_
