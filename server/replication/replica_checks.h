// Checks of the messages between a primary and its replicas. Their content becomes the replica, its
// log and its checkpoints, so it is checked before it is used: first the number of its parts, and
// once it is parsed its checksum.
//
// Thread safety: functions without state.
#ifndef CAPSTAN_SERVER_REPLICATION_REPLICA_CHECKS_H_
#define CAPSTAN_SERVER_REPLICATION_REPLICA_CHECKS_H_

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/cord.h"
#include "common/security/certificates/identity.h"
#include "proto/parameter_server.pb.h"
#include "server/engine/replica_transport.h"

namespace capstan::server {

// Errors: kDataLoss         these bytes are no batch: the primary sends it again.
//         kInvalidArgument  it has more parts (messages, records and whatever else may be repeated)
//                           than a primary sends.
absl::StatusOr<v1::ReplicateBatch> ParseBatch(const absl::Cord& bytes);

// Errors: kDataLoss  the message has no checksum, or another one than its bytes; names both.
absl::Status CheckArrived(const v1::ReplicateBatch& batch);
absl::Status CheckArrived(const v1::ReplicateBatchAnswer& answer);
absl::Status CheckArrived(const v1::ReplicateRequest& install);
absl::Status CheckArrived(const v1::InstallPart& part);
absl::Status CheckArrived(const v1::ReplicateResponse& response);

// Checks that the message comes from the server that it names as its sender. A server without
// credentials has no caller, and accepts all. A refusal is logged.
// Errors: kPermissionDenied  names both.
absl::Status CheckSender(const v1::ReplicateRequest& message,
                         const std::optional<Identity>& caller);

// The job of its first message; empty if it has none.
const std::string& JobOf(const v1::ReplicateBatch& batch);

// The outcomes of a batch of so many messages, by the answer to it. All of them have failed if the
// answer has another number of results (kInternal), or `status` is not OK.
std::vector<ReplicaOutcome> OutcomesOf(size_t messages, const absl::Status& status,
                                       const v1::ReplicateBatchAnswer& answer);

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_REPLICATION_REPLICA_CHECKS_H_
