#include "common/net/grpc/credentials.h"

#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_certificate_verifier.h>
#include <grpcpp/security/tls_credentials_options.h>

#include <cstdlib>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/net/gate/call_gate.h"
#include "common/net/socket/tls_stream.h"
#include "common/security/certificates/tls_folder.h"
#include "common/status/status_macros.h"

namespace capstan {
namespace {

using grpc::experimental::CertificateVerifier;
using grpc::experimental::ExternalCertificateVerifier;
using grpc::experimental::FileWatcherCertificateProvider;
using grpc::experimental::TlsCustomVerificationCheckRequest;

// Refuses a server whose certificate, which gRPC has verified, has another identity than expected
// or is on the deny list.
class PeerVerifier final : public ExternalCertificateVerifier {
 public:
  PeerVerifier(Identity expected, std::shared_ptr<CallGate> gate)
      : expected_(std::move(expected)), gate_(std::move(gate)) {}

  bool Verify(TlsCustomVerificationCheckRequest* request, std::function<void(grpc::Status)>,
              grpc::Status* status) override {
    const std::string expected = FormatIdentity(expected_);
    std::vector<std::string> found;
    for (const grpc::string_ref& uri : request->uri_names()) {
      found.emplace_back(uri.data(), uri.size());
    }
    if (found.size() == 1 && found[0] == expected) {
      const absl::Status denied = CheckNotDenied(request->peer_cert());
      if (!denied.ok()) {
        *status = grpc::Status(grpc::StatusCode::UNAUTHENTICATED, std::string(denied.message()));
      }
      return true;
    }
    *status = grpc::Status(
        grpc::StatusCode::UNAUTHENTICATED,
        absl::StrCat("the peer's certificate names ",
                     found.empty() ? "nobody" : absl::StrCat("\"", found[0], "\""),
                     found.size() > 1 ? " and others" : "", ", expected \"", expected, "\""));
    return true;
  }
  void Cancel(TlsCustomVerificationCheckRequest*) override {}

 private:
  absl::Status CheckNotDenied(grpc::string_ref certificate) {
    CAPSTAN_ASSIGN_OR_RETURN(const CertificateFacts facts,
                             ReadCertificate({certificate.data(), certificate.size()}));
    return gate_->CheckNotDenied(facts, absl::Now());
  }

  const Identity expected_;
  const std::shared_ptr<CallGate> gate_;  // Shared with the Credentials, which it may outlive.
};

std::shared_ptr<FileWatcherCertificateProvider> Watch(const std::string& folder) {
  return std::make_shared<FileWatcherCertificateProvider>(
      absl::StrCat(folder, "/", kKeyFile), absl::StrCat(folder, "/", kCertificateFile),
      absl::StrCat(folder, "/", kTrustedFile), Credentials::kRereadSeconds);
}

}  // namespace

void RequireTls13() { setenv("GRPC_SSL_CIPHER_SUITES", "PSK-AES128-GCM-SHA256", /*overwrite=*/1); }

absl::StatusOr<std::unique_ptr<Credentials>> Credentials::Read(const std::string& folder,
                                                               AuditLog* audit) {
  CAPSTAN_ASSIGN_OR_RETURN(const TlsFolder files, TlsFolder::Read(folder, absl::Now()));
  return std::unique_ptr<Credentials>(new Credentials(files, audit));
}

Credentials::Credentials(const TlsFolder& files, AuditLog* audit)
    : folder_(files.path),
      self_(files.facts.identity),
      files_(Watch(folder_)),
      gate_(std::make_shared<CallGate>(CallGate::Options{
          .cluster = self_.cluster, .deny_list = files.DeniedPath(), .audit = audit})) {}

Credentials::~Credentials() = default;

Identity Credentials::IdentityOf(const ExpectedPeer& peer) const {
  return {.cluster = self_.cluster, .role = peer.role, .name = peer.name};
}

std::shared_ptr<grpc::ChannelCredentials> Credentials::ToPeer(const ExpectedPeer& peer) const {
  absl::MutexLock lock(&mutex_);
  std::shared_ptr<grpc::ChannelCredentials>& made = to_peers_[{peer.role, peer.name}];
  if (made != nullptr) return made;
  grpc::experimental::TlsChannelCredentialsOptions options;
  options.set_certificate_provider(files_);
  options.watch_root_certs();
  options.watch_identity_key_cert_pairs();
  options.set_verify_server_certs(true);
  options.set_check_call_host(false);  // The certificate names a node, not a host.
  options.set_certificate_verifier(
      ExternalCertificateVerifier::Create<PeerVerifier>(IdentityOf(peer), gate_));
  made = grpc::experimental::TlsCredentials(options);
  return made;
}

std::shared_ptr<grpc::ServerCredentials> Credentials::ForServer() const {
  grpc::experimental::TlsServerCredentialsOptions options(files_);
  options.watch_root_certs();
  options.watch_identity_key_cert_pairs();
  options.set_cert_request_type(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  std::shared_ptr<grpc::ServerCredentials> credentials =
      grpc::experimental::TlsServerCredentials(options);
  credentials->SetAuthMetadataProcessor(gate_);
  return credentials;
}

absl::StatusOr<std::unique_ptr<SocketStream>> Credentials::ToServer(
    Descriptor socket, const ExpectedPeer& peer) const {
  return TlsStream(std::move(socket),
                   {.folder = folder_,
                    .expected = IdentityOf(peer),
                    .check_server = [gate = gate_](const CertificateFacts& server) {
                      return gate->CheckNotDenied(server, absl::Now());
                    }});
}

absl::StatusOr<std::unique_ptr<SocketStream>> Credentials::ToClient(Descriptor socket) const {
  return TlsStream(std::move(socket), {.folder = folder_});
}

absl::Status Credentials::CheckCall(const CertificateFacts& caller, absl::string_view method,
                                    const std::string& peer) const {
  return gate_->Check(caller, method, absl::Now(), peer);
}

}  // namespace capstan
