// Conversions of what daemons and the scheduler tell each other.
//
// What comes in is checked here: roles, ranges and lengths. Thread safety: pure functions.
#ifndef CAPSTAN_SCHEDULER_NODE_CODEC_H_
#define CAPSTAN_SCHEDULER_NODE_CODEC_H_

#include <memory>
#include <string>

#include "absl/container/btree_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/scheduler.pb.h"
#include "scheduler/admission.h"
#include "scheduler/core/messages.h"

namespace capstan::scheduler {

// Records of jobs, for their servers (scheduler/store/job_record.h). Shared by the service and the
// answers on their way out; immutable.
using JobRecords = absl::btree_map<JobId, std::shared_ptr<const std::string>>;

// Errors: kFailedPrecondition  another protocol version.   kInvalidArgument  no role, more stored
//         shards than anybody has, or GPUs as DevicesFromProto (common/devices) refuses them.
absl::StatusOr<NodeInfo> DecodeNodeInfo(const v1::RegisterRequest& request);
// Of the logs that a server registers with.
// Errors: kInvalidArgument  too many, a record that is too large, or an id that cannot be.
absl::Status CheckKeptLogs(const v1::RegisterRequest& request);
void EncodeRegistration(const Registration& registration, v1::RegisterResponse& out);

// Errors: kInvalidArgument  a negative rank.
absl::StatusOr<NodeReport> DecodeNodeReport(const v1::SyncNodeRequest& request);
// REQUIRES: reply.status is ok; `jobs` holds every job that it names. A job that `records` does not
// have goes without.
void EncodeNodeReply(const NodeReply& reply, const AdmittedJobs& jobs, const JobRecords& records,
                     v1::SyncNodeResponse& out);

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_NODE_CODEC_H_
