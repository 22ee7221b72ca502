// SocketStream: the bytes of one TCP connection, both ways, without waiting. Plain or encrypted.
//
// Data connections read and write through it, so that frames do not know whether they are
// encrypted (tls_stream.h).
// Thread safety: one thread receives and one sends, at the same time.
#ifndef CAPSTAN_COMMON_NET_SOCKET_SOCKET_STREAM_H_
#define CAPSTAN_COMMON_NET_SOCKET_SOCKET_STREAM_H_

#include <sys/uio.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/security/certificates/certificate.h"
#include "common/storage/files/descriptor.h"
#include "common/time/instant.h"

namespace capstan {

class SocketStream {
 public:
  explicit SocketStream(Descriptor socket) : socket_(std::move(socket)) {}
  virtual ~SocketStream() = default;
  SocketStream(const SocketStream&) = delete;
  SocketStream& operator=(const SocketStream&) = delete;

  int socket() const { return socket_.get(); }  // To poll for more, or for room.

  // Authenticates both ends, if the stream does that. It is the first call on a stream. Continues
  // as far as it can without waiting, and returns the events of poll(2) that it waits for; 0: it is
  // done.
  // Errors: kUnavailable       the connection is over.
  //         kPermissionDenied  the peer is not who it should be; says who it is.
  virtual absl::StatusOr<short> Handshake() = 0;
  // The certificate that the peer has proved to own; none if the stream does not authenticate.
  virtual const std::optional<CertificateFacts>& peer() const = 0;

  // True: bytes that were changed on their way are an error of Receive, never received.
  virtual bool detects_damage() const = 0;

  // Fills the places in order, with as many bytes as have come. 0: none have.
  // Errors: kUnavailable  the connection has ended, or is broken; says how.
  virtual absl::StatusOr<size_t> Receive(absl::Span<const iovec> places) = 0;
  // Sends from the front of the pieces and returns how many bytes are on their way. 0: the
  // connection takes none now; the next call begins with the same bytes.
  // Errors: as above.
  virtual absl::StatusOr<size_t> Send(absl::Span<const iovec> pieces) = 0;

 private:
  const Descriptor socket_;
};

// Makes a stream without encryption. `socket` is connected, and does not block.
std::unique_ptr<SocketStream> PlainStream(Descriptor socket);

// Waits for `events` of poll(2) at the socket. Errors: kUnavailable  `until` has passed, `stop` has
// become readable, or poll has failed.
absl::Status AwaitSocket(int socket, short events, absl::Time until, int stop);

// Returns the milliseconds for poll(2), rounded up so that `until` has passed when it returns.
int PollMillis(Instant until, Instant now);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_NET_SOCKET_SOCKET_STREAM_H_
