// The checksums of messages between a primary and its replicas: what they bring becomes the
// replica, its log and its checkpoints, so it is checked before it is used.
//
// Thread safety: functions without state.
#ifndef CAPSTAN_SERVER_REPLICATION_REPLICA_CHECKS_H_
#define CAPSTAN_SERVER_REPLICATION_REPLICA_CHECKS_H_

#include "absl/status/status.h"
#include "proto/parameter_server.pb.h"

namespace capstan::server {

// Errors: kDataLoss  the message has no checksum, or another one than its bytes; names both.
absl::Status CheckArrived(const v1::ReplicateRequest& request);
absl::Status CheckArrived(const v1::InstallPart& part);
absl::Status CheckArrived(const v1::ReplicateResponse& response);

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_REPLICATION_REPLICA_CHECKS_H_
