// The one place where gRPC's status codes become Abseil's and back.
#ifndef CAPSTAN_COMMON_NET_GRPC_STATUS_H_
#define CAPSTAN_COMMON_NET_GRPC_STATUS_H_

#include <grpcpp/support/status.h>

#include "absl/status/status.h"

namespace capstan {

grpc::Status ToGrpcStatus(const absl::Status& status);
absl::Status FromGrpcStatus(const grpc::Status& status);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_NET_GRPC_STATUS_H_
