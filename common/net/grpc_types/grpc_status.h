// The one place where gRPC's status codes become Abseil's and back.
//
// gRPC makes statuses of its own: a stream that is reset or removed under a call ends it with
// INTERNAL or UNKNOWN, and the call may have run. Answers of our own handlers with these codes are
// marked (in the status's details), so that a caller can tell a lost call, which it repeats with
// the same ids, from a bug, which it reports:
//
//   INTERNAL, UNKNOWN of a handler      kInternal, kUnknown
//   INTERNAL, UNKNOWN of the transport  kUnavailable, "the transport lost the call: ..."
//
// Thread safety: functions without state.
#ifndef CAPSTAN_COMMON_NET_GRPC_TYPES_GRPC_STATUS_H_
#define CAPSTAN_COMMON_NET_GRPC_TYPES_GRPC_STATUS_H_

#include <grpcpp/support/status.h>

#include "absl/status/status.h"

namespace capstan {

grpc::Status ToGrpcStatus(const absl::Status& status);  // Handlers use it.
absl::Status FromGrpcStatus(const grpc::Status& status);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_NET_GRPC_TYPES_GRPC_STATUS_H_
