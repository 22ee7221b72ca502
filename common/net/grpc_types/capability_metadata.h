// Capabilities as gRPC calls carry them: in a metadata entry.
//
// Thread safety: functions without state.
#ifndef CAPSTAN_COMMON_NET_GRPC_TYPES_CAPABILITY_METADATA_H_
#define CAPSTAN_COMMON_NET_GRPC_TYPES_CAPABILITY_METADATA_H_

#include <grpcpp/client_context.h>
#include <grpcpp/server_context.h>

#include <string>

namespace capstan {

// gRPC sends values of names that end with "-bin" as they are.
inline constexpr char kCapabilityMetadata[] = "capstan-capability-bin";

// Adds the capability of a call; nothing if it is empty. REQUIRES: before the call begins, once.
void AddCapability(const std::string& capability, grpc::ClientContext* context);

// Returns the bytes that a caller has sent as its capability. Empty: it has sent none, or several.
std::string CapabilityOf(const grpc::ServerContextBase& context);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_NET_GRPC_TYPES_CAPABILITY_METADATA_H_
