// Conversions that several messages share: failures, routing tables, names of states.
//
// Thread safety: pure functions.
#ifndef CAPSTAN_SCHEDULER_SHARED_CODEC_H_
#define CAPSTAN_SCHEDULER_SHARED_CODEC_H_

#include <string>

#include "absl/status/status.h"
#include "proto/parameter_server.pb.h"
#include "proto/scheduler.pb.h"
#include "scheduler/core/messages.h"
#include "scheduler/core/placement.h"

namespace capstan::scheduler {

// A reason that this program does not know becomes kInternal; a message is cut to 16 KiB.
Failure DecodeFailure(const v1::Failure& failure);
void EncodeFailure(const Failure& failure, v1::Failure& out);

void EncodeRouting(const Routing& routing, v1::RoutingTable& out);

CheckpointPart DecodePart(const v1::CheckpointPart& part);
void EncodePart(const CheckpointPart& part, v1::CheckpointPart& out);

// Text of at most `bytes_max` bytes.
std::string Cut(const std::string& text, size_t bytes_max);

// Errors: kFailedPrecondition  not this program's version; names both.
absl::Status CheckProtocolVersion(v1::ProtocolVersion version);

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_SHARED_CODEC_H_
