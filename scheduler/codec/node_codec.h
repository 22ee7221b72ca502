// Conversions of the messages between daemons and the scheduler.
//
// Decoding checks roles, ranges and lengths. Thread safety: pure functions.
#ifndef CAPSTAN_SCHEDULER_CODEC_NODE_CODEC_H_
#define CAPSTAN_SCHEDULER_CODEC_NODE_CODEC_H_

#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/scheduler.pb.h"
#include "scheduler/admission/admission.h"
#include "scheduler/core/messages/messages.h"

namespace capstan::scheduler {

// The records of jobs that their servers store (scheduler/store/job_record.h). DurableState and the
// answers that it has not sent yet share them; they are immutable.
using JobRecords = std::map<JobId, std::shared_ptr<const std::string>>;

// Errors: kFailedPrecondition  another protocol version.   kInvalidArgument  no role, too many
//         stored shards, or GPUs that DevicesFromProto (common/devices) refuses.
absl::StatusOr<NodeInfo> DecodeNodeInfo(const v1::RegisterRequest& request);
// Checks the logs in a server's registration.
// Errors: kInvalidArgument  too many logs, a job id or record that is too large, or an impossible
//                           unique id.
absl::Status CheckKeptLogs(const v1::RegisterRequest& request);
void EncodeRegistration(const Registration& registration, v1::RegisterResponse& out);

// Errors: kInvalidArgument  a negative rank.
absl::StatusOr<NodeReport> DecodeNodeReport(const v1::SyncNodeRequest& request);
// A job that is missing in `records` is sent without a record.
// REQUIRES: reply.status is ok; `jobs` holds every job that the reply names.
void EncodeNodeReply(const NodeReply& reply, const AdmittedJobs& jobs, const JobRecords& records,
                     v1::SyncNodeResponse& out);

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_CODEC_NODE_CODEC_H_
