#include "common/net/socket/socket_stream.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace capstan {
namespace {

msghdr MessageOf(absl::Span<const iovec> parts) {
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(parts.data());
  message.msg_iovlen = parts.size();
  return message;
}

class Plain final : public SocketStream {
 public:
  using SocketStream::SocketStream;

  absl::StatusOr<short> Handshake() override { return short{0}; }
  const std::optional<CertificateFacts>& peer() const override { return peer_; }

  bool detects_damage() const override { return false; }  // TCP's 16 bits do not count.

  absl::StatusOr<size_t> Receive(absl::Span<const iovec> places) override {
    msghdr message = MessageOf(places);
    const ssize_t received = recvmsg(socket(), &message, MSG_DONTWAIT);
    if (received > 0) return static_cast<size_t>(received);
    if (received == 0) return absl::UnavailableError("the peer has closed the connection");
    if (errno == EAGAIN || errno == EINTR) return 0;
    return absl::UnavailableError(absl::StrCat("receiving: ", std::strerror(errno)));
  }

  absl::StatusOr<size_t> Send(absl::Span<const iovec> pieces) override {
    for (;;) {
      const msghdr message = MessageOf(pieces);
      const ssize_t sent = sendmsg(socket(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
      if (sent >= 0) return static_cast<size_t>(sent);
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == ENOBUFS) return 0;
      return absl::UnavailableError(absl::StrCat("sending: ", std::strerror(errno)));
    }
  }

 private:
  const std::optional<CertificateFacts> peer_;
};

}  // namespace

std::unique_ptr<SocketStream> PlainStream(Descriptor socket) {
  return std::make_unique<Plain>(std::move(socket));
}

absl::Status AwaitSocket(int socket, short events, absl::Time until, int stop) {
  for (;;) {
    pollfd files[] = {{.fd = socket, .events = events, .revents = 0},
                      {.fd = stop, .events = POLLIN, .revents = 0}};
    const absl::Duration left = until - absl::Now();
    if (left <= absl::ZeroDuration()) return absl::UnavailableError("no answer in time");
    const int ready = poll(files, 2, static_cast<int>(absl::ToInt64Milliseconds(left)) + 1);
    if (ready < 0 && errno != EINTR) {
      return absl::UnavailableError(absl::StrCat("poll: ", std::strerror(errno)));
    }
    if (ready > 0 && files[1].revents != 0) return absl::UnavailableError("stopped");
    if (ready > 0) return absl::OkStatus();
  }
}

int PollMillis(Instant until, Instant now) {
  if (until == Instant::InfiniteFuture()) return -1;
  const absl::Duration left = std::max(until - now, absl::ZeroDuration());
  return static_cast<int>(
      absl::ToInt64Milliseconds(std::min(absl::Ceil(left, absl::Milliseconds(1)), absl::Hours(1))));
}

}  // namespace capstan
