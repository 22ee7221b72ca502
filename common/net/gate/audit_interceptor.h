// AuditCalls: makes a gRPC server write its calls to the audit log.
//
// It sees every call that the gate (call_gate.h) admits, and what the handler answers: a handler's
// PERMISSION_DENIED becomes a refused call. The job and the node are the fields `job_id` and
// `node_id` of the request, or else of the response. The gate reports what it refuses by itself.
// Thread safety: thread-safe.
#ifndef CAPSTAN_COMMON_NET_GATE_AUDIT_INTERCEPTOR_H_
#define CAPSTAN_COMMON_NET_GATE_AUDIT_INTERCEPTOR_H_

#include <grpcpp/support/server_interceptor.h>

#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "common/security/audit_log.h"

namespace capstan {

// Makes the interceptors of a server whose calls `audit` records; it outlives the server.
std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> AuditCalls(AuditLog* audit);

// host:port of gRPC's name for a peer: "ipv4:10.0.0.7:51234", "ipv6:%5B::1%5D:51234".
std::string HostPortOfPeer(absl::string_view peer);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_NET_GATE_AUDIT_INTERCEPTOR_H_
