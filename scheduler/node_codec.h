// Conversions of what daemons and the scheduler tell each other.
//
// What comes in is checked here: roles, ranges and lengths. Thread safety: pure functions.
#ifndef CAPSTAN_SCHEDULER_NODE_CODEC_H_
#define CAPSTAN_SCHEDULER_NODE_CODEC_H_

#include "absl/status/statusor.h"
#include "proto/scheduler.pb.h"
#include "scheduler/admission.h"
#include "scheduler/core/messages.h"

namespace capstan::scheduler {

// Errors: kFailedPrecondition  another protocol version.   kInvalidArgument  no role, more stored
//         shards than anybody has, or GPUs as DevicesFromProto (common/devices) refuses them.
absl::StatusOr<NodeInfo> DecodeNodeInfo(const v1::RegisterRequest& request);
void EncodeRegistration(const Registration& registration, v1::RegisterResponse& out);

// Errors: kInvalidArgument  a negative rank.
absl::StatusOr<NodeReport> DecodeNodeReport(const v1::SyncNodeRequest& request);
// REQUIRES: reply.status is ok; `jobs` holds every job that it names.
void EncodeNodeReply(const NodeReply& reply, const AdmittedJobs& jobs, v1::SyncNodeResponse& out);

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_NODE_CODEC_H_
