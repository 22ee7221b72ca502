// TLS for data connections (RFC 8446): a SocketStream over OpenSSL; both ends have certificates.
//
// Only TLS 1.3. No session tickets: each connection authenticates anew. Keys are updated after
// kRecordsAKey records, well below the limit of AES-GCM (RFC 8446, section 5.5), because a
// connection lives as long as a job. Values are encrypted in records of 16 KiB; a head and its
// values share a record. Records are sent in batches of up to 256 KiB, outside of the session's
// lock, so that a thread that receives is not held up by the kernel's copy.
#ifndef CAPSTAN_COMMON_NET_SOCKET_TLS_STREAM_H_
#define CAPSTAN_COMMON_NET_SOCKET_TLS_STREAM_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/net/socket/socket_stream.h"
#include "common/security/certificates/certificate.h"
#include "common/security/certificates/identity.h"
#include "common/storage/files/descriptor.h"

namespace capstan {

inline constexpr int64_t kRecordsAKey = int64_t{1} << 22;  // 64 GiB of values.

// `folder`: see common/security/certificates/tls_folder.h; its files are read now. `socket` is
// connected, and does not block.
struct TlsEnd {
  std::string folder;
  // The identity that a server must have whom this end has called. None: this end was called, and
  // accepts every certificate of the authority; the CallGate judges it.
  std::optional<Identity> expected = std::nullopt;
  // Judges the server with that identity, too. An error ends the handshake. May be null.
  std::function<absl::Status(const CertificateFacts& server)> check_server = nullptr;
};
// Errors: those of TlsFolder::Read.
absl::StatusOr<std::unique_ptr<SocketStream>> TlsStream(Descriptor socket, const TlsEnd& end);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_NET_SOCKET_TLS_STREAM_H_
