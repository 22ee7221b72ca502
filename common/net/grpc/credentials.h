// Credentials: proves to peers who this process is, and checks who they are.
//
// A daemon or command makes them once from its --tls-dir
// (common/security/certificates/tls_folder.h) and hands them to everything that makes or accepts
// calls. Connections are TLS with a certificate on each side.
// A caller names the node that it expects, and gets no connection to any other, nor to one whose
// certificate is on its own deny list. A server admits each call by the caller's certificate, its
// validity, the deny list and the table in common/security/call_policy.h. New files in the folder
// serve later handshakes, so certificates are replaced without a restart. A null pointer to
// credentials means plain text: nothing is encrypted, and nobody is authenticated.
// Thread safety: thread-safe. gRPC's objects may outlive the Credentials that made them.
#ifndef CAPSTAN_COMMON_NET_GRPC_CREDENTIALS_H_
#define CAPSTAN_COMMON_NET_GRPC_CREDENTIALS_H_

#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "common/net/socket/socket_stream.h"
#include "common/security/audit_log.h"
#include "common/security/certificates/certificate.h"
#include "common/security/certificates/identity.h"
#include "common/security/certificates/tls_folder.h"
#include "common/storage/files/descriptor.h"

namespace grpc::experimental {
class FileWatcherCertificateProvider;
}

namespace capstan {

class CallGate;

// From now on gRPC in this process makes and accepts no connection below TLS 1.3, as data
// connections never do. gRPC 1.51 has no setting for that, but reads the ciphers of TLS 1.2 from
// the environment, once: they become one that needs a key which both sides know beforehand, and
// nobody here has such a key. Ciphers of TLS 1.3 are another list.
// For mains of our own programs: in a user's process, the variable would also affect what that
// process does with gRPC besides.
// REQUIRES: no other thread runs yet.
void RequireTls13();

// The node that is expected at an address, in the caller's own cluster.
struct ExpectedPeer {
  PeerRole role = PeerRole::kScheduler;
  std::string name = {};  // Empty for the scheduler.
};

class Credentials {
 public:
  static constexpr unsigned kRereadSeconds = 1;  // The files are read again this often.

  // `audit` records the calls that the gate refuses; it outlives the credentials and all servers
  // that use them. Null: they are only logged.
  // Errors: those of TlsFolder::Read, by the wall clock.
  static absl::StatusOr<std::unique_ptr<Credentials>> Read(const std::string& folder,
                                                           AuditLog* audit = nullptr);
  ~Credentials();

  const Identity& self() const { return self_; }  // From the folder's certificate at Read.

  // For gRPC: the credentials of a channel to that peer, and those of a server. Each call of the
  // server passes the CallGate.
  std::shared_ptr<grpc::ChannelCredentials> ToPeer(const ExpectedPeer& peer) const;
  std::shared_ptr<grpc::ServerCredentials> ForServer() const;

  // For data connections: the two ends of an encrypted stream over a connected socket.
  // Errors: those of TlsStream.
  absl::StatusOr<std::unique_ptr<SocketStream>> ToServer(Descriptor socket,
                                                         const ExpectedPeer& peer) const;
  absl::StatusOr<std::unique_ptr<SocketStream>> ToClient(Descriptor socket) const;
  // `peer`: host:port. Errors: those of CallGate::Check.
  absl::Status CheckCall(const CertificateFacts& caller, absl::string_view method,
                         const std::string& peer) const;

 private:
  Credentials(const TlsFolder& files, AuditLog* audit);
  Identity IdentityOf(const ExpectedPeer& peer) const;

  const std::string folder_;
  const Identity self_;
  const std::shared_ptr<grpc::experimental::FileWatcherCertificateProvider> files_;
  const std::shared_ptr<CallGate> gate_;  // Shared with gRPC's server credentials.

  mutable absl::Mutex mutex_;
  // gRPC shares a connection between channels only if they have the same credentials object.
  mutable std::map<std::pair<PeerRole, std::string>, std::shared_ptr<grpc::ChannelCredentials>>
      to_peers_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace capstan

#endif  // CAPSTAN_COMMON_NET_GRPC_CREDENTIALS_H_
