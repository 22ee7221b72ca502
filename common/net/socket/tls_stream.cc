#include "common/net/socket/tls_stream.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <functional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "common/security/certificates/openssl_objects.h"
#include "common/security/certificates/tls_folder.h"
#include "common/status/status_macros.h"

namespace capstan {
namespace {

constexpr size_t kRecordBytes = SSL3_RT_MAX_PLAIN_LENGTH;
// Read at a time, so that a system call brings many records.
constexpr size_t kReadBytes = 256 << 10;
// Encrypted before they are sent, so that a system call takes many records.
constexpr size_t kBatchBytes = 256 << 10;
constexpr char kCipherSuites[] =
    "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256";

using Context = std::unique_ptr<SSL_CTX, OpenSslFree<SSL_CTX_free>>;
using Session = std::unique_ptr<SSL, OpenSslFree<SSL_free>>;

// ---------------------------------------------------------------- the socket, as OpenSSL sees it

// OpenSSL reads from the socket, and writes to memory: what it has written is sent by us, many
// records at a time, and without an end of the process by SIGPIPE.
struct Wire {
  int socket;
  std::vector<char> written;
};

Wire& WireOf(BIO* bio) { return *static_cast<Wire*>(BIO_get_data(bio)); }

int Write(BIO* bio, const char* bytes, int size) {
  BIO_clear_retry_flags(bio);
  std::vector<char>& written = WireOf(bio).written;
  written.insert(written.end(), bytes, bytes + size);
  return size;
}

int ReadFromSocket(BIO* bio, char* bytes, int size) {
  BIO_clear_retry_flags(bio);
  const ssize_t received = recv(WireOf(bio).socket, bytes, static_cast<size_t>(size), MSG_DONTWAIT);
  if (received < 0 && (errno == EAGAIN || errno == EINTR)) BIO_set_retry_read(bio);
  return static_cast<int>(received);
}

long Control(BIO*, int command, long, void*) { return command == BIO_CTRL_FLUSH ? 1 : 0; }

// One for all streams; OpenSSL has no way to free it while a stream may use it.
const BIO_METHOD* WireMethod() {
  static const BIO_METHOD* const method = [] {
    BIO_METHOD* made = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "capstan socket");
    BIO_meth_set_write(made, Write);
    BIO_meth_set_read(made, ReadFromSocket);
    BIO_meth_set_ctrl(made, Control);
    return made;
  }();
  return method;
}

BIO* NewWireBio(Wire* wire) {
  BIO* const bio = BIO_new(WireMethod());
  if (bio == nullptr) return nullptr;
  BIO_set_data(bio, wire);
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
  SSL_CTX_set_read_ahead(raw, 1);
  SSL_CTX_set_default_read_buffer_len(raw, kReadBytes);
  SSL_CTX_set_verify(raw, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  CAPSTAN_RETURN_IF_ERROR(UseFiles(raw, files));
  return context;
}

class Tls final : public SocketStream {
 public:
  // `wire` is that of the session.
  Tls(Descriptor socket, const TlsEnd& end, std::unique_ptr<Wire> wire, Session session)
      : SocketStream(std::move(socket)),
        expected_(end.expected),
        check_server_(end.check_server),
        wire_(std::move(wire)),
        session_(std::move(session)) {}

  absl::StatusOr<short> Handshake() override;
  const std::optional<CertificateFacts>& peer() const override { return peer_; }
  bool detects_damage() const override { return true; }  // Each record has a tag.
  absl::StatusOr<size_t> Receive(absl::Span<const iovec> places) override;
  absl::StatusOr<size_t> Send(absl::Span<const iovec> pieces) override;

 private:
  absl::Status CheckPeer();
  // The meaning of a call's result: OK to go on later, or why the connection is over.
  absl::Status Later(int result) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void UpdateKeyWhenDue() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Makes a batch of records from the front of the pieces, `skip` bytes on.
  absl::Status Encrypt(absl::Span<const iovec> pieces, size_t skip);
  absl::Status EncryptRecord(absl::Span<const char> bytes);
  // Sends the bytes of the batch that the socket takes. False: it takes no more now.
  absl::StatusOr<bool> Flush();

  const std::optional<Identity> expected_;
  const std::function<absl::Status(const CertificateFacts&)> check_server_;  // Null: none.
  std::optional<CertificateFacts> peer_;                                     // Set by Handshake.
  absl::Mutex mutex_;  // Held for a record at a time.
  const std::unique_ptr<Wire> wire_ ABSL_PT_GUARDED_BY(mutex_);
  const Session session_ ABSL_PT_GUARDED_BY(mutex_);
  int64_t records_ ABSL_GUARDED_BY(mutex_) = 0;  // Sent with the present key.
  // Used by the thread that sends, and by Handshake, which comes before.
  std::vector<char> batch_;   // Records on their way.
  size_t batch_sent_ = 0;     // Bytes of the batch that the socket has taken.
  size_t batch_values_ = 0;   // Bytes that Send was given for the batch.
  std::vector<char> record_;  // Bytes of several pieces for one record.
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
  absl::Status later;
  bool done;
  {
    absl::MutexLock lock(&mutex_);
    ERR_clear_error();
    errno = 0;
    const int result = SSL_do_handshake(session_.get());
    done = result == 1;
    if (!done) later = Later(result);
    batch_.insert(batch_.end(), wire_->written.begin(), wire_->written.end());
    wire_->written.clear();
  }
  // A peer that fails the handshake is told so as far as the socket takes it.
  const absl::StatusOr<bool> sent = Flush();
  CAPSTAN_RETURN_IF_ERROR(later);
  CAPSTAN_RETURN_IF_ERROR(sent.status());
  if (!*sent) return short{POLLOUT};
  if (!done) return short{POLLIN};
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
  if (expected_.has_value() && check_server_ != nullptr) {
    CAPSTAN_RETURN_IF_ERROR(check_server_(*facts));
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
        // Bytes that have come are handed out first; the next call finds the end again.
        if (all == 0 && !status.ok()) return status;
        return all;
      }
      filled += bytes;
      all += bytes;
    }
  }
  return all;
}

void Tls::UpdateKeyWhenDue() {
  if (++records_ < kRecordsAKey) return;
  records_ = 0;
  SSL_key_update(session_.get(), SSL_KEY_UPDATE_NOT_REQUESTED);  // Goes with the next record.
}

absl::Status Tls::EncryptRecord(absl::Span<const char> bytes) {
  absl::MutexLock lock(&mutex_);
  ERR_clear_error();
  errno = 0;
  size_t taken = 0;
  const int result = SSL_write_ex(session_.get(), bytes.data(), bytes.size(), &taken);
  if (result == 1) {
    UpdateKeyWhenDue();
    return absl::OkStatus();
  }
  CAPSTAN_RETURN_IF_ERROR(Later(result));
  return absl::InternalError("TLS: a record was not taken, though memory takes all");
}

absl::Status Tls::Encrypt(absl::Span<const iovec> pieces, size_t skip) {
  batch_values_ = 0;
  const auto encrypt = [this](absl::Span<const char> bytes) {
    batch_values_ += bytes.size();
    return EncryptRecord(bytes);
  };
  for (const iovec& piece : pieces) {
    const size_t skipped = std::min(skip, piece.iov_len);
    skip -= skipped;
    absl::Span<const char> left(static_cast<const char*>(piece.iov_base) + skipped,
                                piece.iov_len - skipped);
    while (!left.empty() && batch_values_ + record_.size() < kBatchBytes) {
      const absl::Span<const char> part =
          left.first(std::min(left.size(), kRecordBytes - record_.size()));
      left.remove_prefix(part.size());
      if (part.size() == kRecordBytes) {
        CAPSTAN_RETURN_IF_ERROR(encrypt(part));
        continue;
      }
      record_.insert(record_.end(), part.begin(), part.end());
      if (record_.size() < kRecordBytes) continue;
      CAPSTAN_RETURN_IF_ERROR(encrypt(record_));
      record_.clear();
    }
  }
  if (!record_.empty()) {
    CAPSTAN_RETURN_IF_ERROR(encrypt(record_));
    record_.clear();
  }
  absl::MutexLock lock(&mutex_);
  batch_.swap(wire_->written);
  return absl::OkStatus();
}

absl::StatusOr<bool> Tls::Flush() {
  while (batch_sent_ < batch_.size()) {
    const ssize_t sent = send(socket(), batch_.data() + batch_sent_, batch_.size() - batch_sent_,
                              MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && (errno == EAGAIN || errno == ENOBUFS)) return false;
    if (sent < 0) return absl::UnavailableError(std::strerror(errno));
    batch_sent_ += static_cast<size_t>(sent);
  }
  batch_.clear();
  batch_sent_ = 0;
  return true;
}

absl::StatusOr<size_t> Tls::Send(absl::Span<const iovec> pieces) {
  for (size_t all = 0;;) {
    // A batch that was not sent whole before has the first bytes of `pieces`.
    if (batch_.empty()) CAPSTAN_RETURN_IF_ERROR(Encrypt(pieces, all));
    CAPSTAN_ASSIGN_OR_RETURN(const bool sent, Flush());
    if (!sent || batch_values_ == 0) return all;
    all += std::exchange(batch_values_, 0);
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<SocketStream>> TlsStream(Descriptor socket, const TlsEnd& end) {
  CAPSTAN_ASSIGN_OR_RETURN(const Context context, MakeContext(end));
  Session session(SSL_new(context.get()));
  auto wire = std::make_unique<Wire>(Wire{.socket = socket.get(), .written = {}});
  BIO* const bio = session == nullptr ? nullptr : NewWireBio(wire.get());
  if (bio == nullptr) return absl::InternalError(absl::StrCat("TLS: ", TakeOpenSslError()));
  SSL_set_bio(session.get(), bio, bio);  // The session owns it.
  if (end.expected.has_value()) {
    SSL_set_connect_state(session.get());
  } else {
    SSL_set_accept_state(session.get());
  }
  return std::make_unique<Tls>(std::move(socket), end, std::move(wire), std::move(session));
}

}  // namespace capstan
