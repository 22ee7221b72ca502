// HandshakeAudit: records failed TLS handshakes of gRPC servers, which gRPC 1.51 reports only to
// its own log.
//
// It takes over that log for the whole process, and passes gRPC's other errors on to the daemon's.
// A record has OpenSSL's reason. It has the peer's address only if the connection broke in the
// handshake; otherwise gRPC does not write it.
// A daemon's main makes one, before its servers. Thread safety: thread-compatible.
#ifndef CAPSTAN_COMMON_NET_GATE_HANDSHAKE_AUDIT_H_
#define CAPSTAN_COMMON_NET_GATE_HANDSHAKE_AUDIT_H_

#include "common/security/audit_log.h"

namespace capstan {

class HandshakeAudit {
 public:
  // REQUIRES: there is no other one in this process; `audit` outlives it.
  explicit HandshakeAudit(AuditLog* audit);
  ~HandshakeAudit();
  HandshakeAudit(const HandshakeAudit&) = delete;
  HandshakeAudit& operator=(const HandshakeAudit&) = delete;
};

}  // namespace capstan

#endif  // CAPSTAN_COMMON_NET_GATE_HANDSHAKE_AUDIT_H_
