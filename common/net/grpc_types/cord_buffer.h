// Cord <-> gRPC's ByteBuffer, sharing the memory: neither direction copies large pieces.
//
// Thread safety: functions without state.
#ifndef CAPSTAN_COMMON_NET_GRPC_TYPES_CORD_BUFFER_H_
#define CAPSTAN_COMMON_NET_GRPC_TYPES_CORD_BUFFER_H_

#include <grpcpp/support/byte_buffer.h>

#include "absl/strings/cord.h"

namespace capstan {

// The buffer keeps the memory of the Cord alive until gRPC has sent it.
grpc::ByteBuffer ToByteBuffer(const absl::Cord& cord);
// The Cord keeps the buffer's slices alive.
absl::Cord ToCord(const grpc::ByteBuffer& buffer);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_NET_GRPC_TYPES_CORD_BUFFER_H_
