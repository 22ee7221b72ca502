#include "common/net/tls_stream.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "common/security/openssl_objects.h"
#include "common/security/tls_folder.h"
#include "common/status/status_macros.h"

namespace capstan {
namespace {

constexpr size_t kRecordBytes = SSL3_RT_MAX_PLAIN_LENGTH;
// Read at a time, so that a system call brings many records.
constexpr size_t kReadBytes = 256 << 10;
constexpr char kCipherSuites[] =
    "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256";

using Context = std::unique_ptr<SSL_CTX, OpenSslFree<SSL_CTX_free>>;
using Session = std::unique_ptr<SSL, OpenSslFree<SSL_free>>;

// ---------------------------------------------------------------- the socket, as OpenSSL sees it
// OpenSSL's own would let the kernel end a process without a handler for SIGPIPE.

int DescriptorOf(BIO* bio) {
  return static_cast<int>(reinterpret_cast<intptr_t>(BIO_get_data(bio)));
}

int WriteToSocket(BIO* bio, const char* bytes, int size) {
  BIO_clear_retry_flags(bio);
  const ssize_t sent =
      send(DescriptorOf(bio), bytes, static_cast<size_t>(size), MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent < 0 && (errno == EAGAIN || errno == EINTR || errno == ENOBUFS)) BIO_set_retry_write(bio);
  return static_cast<int>(sent);
}

int ReadFromSocket(BIO* bio, char* bytes, int size) {
  BIO_clear_retry_flags(bio);
  const ssize_t received = recv(DescriptorOf(bio), bytes, static_cast<size_t>(size), MSG_DONTWAIT);
  if (received < 0 && (errno == EAGAIN || errno == EINTR)) BIO_set_retry_read(bio);
  return static_cast<int>(received);
}

long ControlSocket(BIO*, int command, long, void*) { return command == BIO_CTRL_FLUSH ? 1 : 0; }

// One for all streams; OpenSSL has no way to free it while a stream may use it.
const BIO_METHOD* SocketMethod() {
  static const BIO_METHOD* const method = [] {
    BIO_METHOD* made = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "capstan socket");
    BIO_meth_set_write(made, WriteToSocket);
    BIO_meth_set_read(made, ReadFromSocket);
    BIO_meth_set_ctrl(made, ControlSocket);
    return made;
  }();
  return method;
}

BIO* NewSocketBio(int socket) {
  BIO* const bio = BIO_new(SocketMethod());
  if (bio == nullptr) return nullptr;
  BIO_set_data(bio, reinterpret_cast<void*>(static_cast<intptr_t>(socket)));
  BIO_set_init(bio, 1);
  return bio;
}

// ---------------------------------------------------------------- sessions

// The reason of a failed call of this thread.
std::string ReasonOfFailure() {
  const int error = errno;
  if (ERR_peek_error() != 0) return TakeOpenSslError();
  return error == 0 ? "the peer has closed the connection" : std::strerror(error);
}

absl::Status UseFiles(SSL_CTX* context, const TlsFolder& files) {
  CAPSTAN_ASSIGN_OR_RETURN(const std::vector<CertificatePtr> own,
                           ReadCertificates(files.certificate_pem));
  CAPSTAN_ASSIGN_OR_RETURN(const PrivateKeyPtr key, ReadPrivateKey(files.key_pem));
  CAPSTAN_ASSIGN_OR_RETURN(const std::vector<CertificatePtr> trusted,
                           ReadCertificates(files.authorities_pem));
  bool used = SSL_CTX_use_certificate(context, own[0].get()) == 1 &&
              SSL_CTX_use_PrivateKey(context, key.get()) == 1;
  for (size_t i = 1; i < own.size(); ++i)
    used &= SSL_CTX_add1_chain_cert(context, own[i].get()) == 1;
  X509_STORE* const store = SSL_CTX_get_cert_store(context);
  for (const CertificatePtr& each : trusted) used &= X509_STORE_add_cert(store, each.get()) == 1;
  if (used) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(files.path, ": ", TakeOpenSslError()));
}

absl::StatusOr<Context> MakeContext(const TlsEnd& end) {
  CAPSTAN_ASSIGN_OR_RETURN(const TlsFolder files, TlsFolder::Read(end.folder, absl::Now()));
  Context context(
      SSL_CTX_new(end.expected.has_value() ? TLS_client_method() : TLS_server_method()));
  if (context == nullptr) return absl::InternalError(absl::StrCat("TLS: ", TakeOpenSslError()));
  SSL_CTX* const raw = context.get();
  SSL_CTX_set_min_proto_version(raw, TLS1_3_VERSION);
  SSL_CTX_set_ciphersuites(raw, kCipherSuites);
  SSL_CTX_set_num_tickets(raw, 0);
  SSL_CTX_set_session_cache_mode(raw, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_mode(raw, SSL_MODE_ENABLE_PARTIAL_WRITE);
  SSL_CTX_set_read_ahead(raw, 1);
  SSL_CTX_set_default_read_buffer_len(raw, kReadBytes);
  SSL_CTX_set_verify(raw, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  CAPSTAN_RETURN_IF_ERROR(UseFiles(raw, files));
  return context;
}

class Tls final : public SocketStream {
 public:
  Tls(Descriptor socket, std::optional<Identity> expected, Session session)
      : SocketStream(std::move(socket)),
        expected_(std::move(expected)),
        session_(std::move(session)) {}

  absl::StatusOr<short> Handshake() override;
  const std::optional<CertificateFacts>& peer() const override { return peer_; }
  absl::StatusOr<size_t> Receive(absl::Span<const iovec> places) override;
  absl::StatusOr<size_t> Send(absl::Span<const iovec> pieces) override;

 private:
  absl::Status CheckPeer();
  // The meaning of a call's result: OK to go on later, or why the connection is over.
  absl::Status Later(int result) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void UpdateKeyWhenDue() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Copies from the front of the pieces, `skip` bytes on, until a record is full.
  void FillRecord(absl::Span<const iovec> pieces, size_t skip);

  const std::optional<Identity> expected_;
  std::optional<CertificateFacts> peer_;  // Set by Handshake.
  absl::Mutex mutex_;                     // Held for a record at a time.
  const Session session_ ABSL_PT_GUARDED_BY(mutex_);
  int64_t records_ ABSL_GUARDED_BY(mutex_) = 0;  // Sent with the present key.
  // Used by the thread that sends: the record that OpenSSL has not taken yet; empty: none.
  std::vector<char> record_;
};

absl::Status Tls::Later(int result) {
  const int error = SSL_get_error(session_.get(), result);
  if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE) return absl::OkStatus();
  if (error == SSL_ERROR_ZERO_RETURN) {
    return absl::UnavailableError("the peer has closed the connection");
  }
  return absl::UnavailableError(absl::StrCat("TLS: ", ReasonOfFailure()));
}

absl::StatusOr<short> Tls::Handshake() {
  {
    absl::MutexLock lock(&mutex_);
    ERR_clear_error();
    errno = 0;
    const int result = SSL_do_handshake(session_.get());
    if (result != 1) {
      CAPSTAN_RETURN_IF_ERROR(Later(result));
      return SSL_want_write(session_.get()) ? short{POLLOUT} : short{POLLIN};
    }
  }
  CAPSTAN_RETURN_IF_ERROR(CheckPeer());
  return short{0};
}

absl::Status Tls::CheckPeer() {
  absl::MutexLock lock(&mutex_);
  const CertificatePtr certificate(SSL_get1_peer_certificate(session_.get()));
  if (certificate == nullptr || SSL_get_verify_result(session_.get()) != X509_V_OK) {
    return absl::PermissionDeniedError("the peer has shown no valid certificate");
  }
  CAPSTAN_ASSIGN_OR_RETURN(const std::string pem, PemOf(certificate.get()));
  absl::StatusOr<CertificateFacts> facts = ReadCertificate(pem);
  if (!facts.ok()) return absl::PermissionDeniedError(facts.status().message());
  if (expected_.has_value() && FormatIdentity(facts->identity) != FormatIdentity(*expected_)) {
    return absl::PermissionDeniedError(absl::StrCat("the peer's certificate names ",
                                                    FormatIdentity(facts->identity), ", expected ",
                                                    FormatIdentity(*expected_)));
  }
  peer_ = *std::move(facts);
  return absl::OkStatus();
}

absl::StatusOr<size_t> Tls::Receive(absl::Span<const iovec> places) {
  size_t all = 0;
  for (const iovec& place : places) {
    for (size_t filled = 0; filled < place.iov_len;) {
      size_t bytes = 0;
      absl::MutexLock lock(&mutex_);
      ERR_clear_error();
      errno = 0;
      const int result = SSL_read_ex(session_.get(), static_cast<char*>(place.iov_base) + filled,
                                     place.iov_len - filled, &bytes);
      if (result != 1) {
        const absl::Status status = Later(result);
        // What has come is handed out first; the next call finds the end again.
        if (all == 0 && !status.ok()) return status;
        return all;
      }
      filled += bytes;
      all += bytes;
    }
  }
  return all;
}

void Tls::FillRecord(absl::Span<const iovec> pieces, size_t skip) {
  for (const iovec& piece : pieces) {
    const size_t skipped = std::min(skip, piece.iov_len);
    skip -= skipped;
    const auto* const begin = static_cast<const char*>(piece.iov_base) + skipped;
    const size_t size = std::min(piece.iov_len - skipped, kRecordBytes - record_.size());
    record_.insert(record_.end(), begin, begin + size);
    if (record_.size() == kRecordBytes) return;
  }
}

void Tls::UpdateKeyWhenDue() {
  if (++records_ < kRecordsAKey) return;
  records_ = 0;
  SSL_key_update(session_.get(), SSL_KEY_UPDATE_NOT_REQUESTED);  // Goes with the next record.
}

absl::StatusOr<size_t> Tls::Send(absl::Span<const iovec> pieces) {
  for (size_t all = 0;;) {
    // A record that was not taken before has the first bytes of `pieces`, as OpenSSL expects.
    if (record_.empty()) FillRecord(pieces, all);
    if (record_.empty()) return all;
    size_t bytes = 0;
    absl::MutexLock lock(&mutex_);
    ERR_clear_error();
    errno = 0;
    const int result = SSL_write_ex(session_.get(), record_.data(), record_.size(), &bytes);
    if (result != 1) {
      const absl::Status status = Later(result);
      if (!status.ok()) return status;
      return all;
    }
    all += bytes;
    record_.clear();
    UpdateKeyWhenDue();
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<SocketStream>> TlsStream(Descriptor socket, const TlsEnd& end) {
  CAPSTAN_ASSIGN_OR_RETURN(const Context context, MakeContext(end));
  Session session(SSL_new(context.get()));
  BIO* const bio = session == nullptr ? nullptr : NewSocketBio(socket.get());
  if (bio == nullptr) return absl::InternalError(absl::StrCat("TLS: ", TakeOpenSslError()));
  SSL_set_bio(session.get(), bio, bio);  // The session owns it.
  if (end.expected.has_value()) {
    SSL_set_connect_state(session.get());
  } else {
    SSL_set_accept_state(session.get());
  }
  return std::make_unique<Tls>(std::move(socket), end.expected, std::move(session));
}

}  // namespace capstan
