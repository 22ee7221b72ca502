#include "tests/benchmark/baseline/socket.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"

namespace capstan::benchmark {
namespace {

absl::Status Failure(const std::string& what) {
  return absl::UnavailableError(absl::StrCat(what, ": ", std::strerror(errno)));
}

sockaddr_in Loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  return address;
}

void SetNoDelay(int file) {
  const int on = 1;
  setsockopt(file, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

// The pieces of a transfer that are still to be moved.
class Pieces {
 public:
  explicit Pieces(std::vector<iovec> pieces) : pieces_(std::move(pieces)) { Advance(0); }

  bool done() const { return first_ == pieces_.size(); }
  msghdr Header() {
    msghdr header{};
    header.msg_iov = pieces_.data() + first_;
    header.msg_iovlen = pieces_.size() - first_;
    return header;
  }
  void Advance(size_t bytes) {
    while (first_ < pieces_.size() && bytes >= pieces_[first_].iov_len) {
      bytes -= pieces_[first_++].iov_len;
    }
    if (bytes == 0) return;
    pieces_[first_].iov_base = static_cast<char*>(pieces_[first_].iov_base) + bytes;
    pieces_[first_].iov_len -= bytes;
  }

 private:
  std::vector<iovec> pieces_;
  size_t first_ = 0;
};

// Moves what can be moved now; *moved says whether something was.
template <typename Call>
absl::Status Step(Pieces& pieces, bool* moved, const char* what, const Call& call) {
  if (pieces.done()) return absl::OkStatus();
  msghdr header = pieces.Header();
  const ssize_t bytes = call(&header);
  if (bytes > 0) {
    pieces.Advance(static_cast<size_t>(bytes));
    *moved = true;
    return absl::OkStatus();
  }
  if (bytes == 0) return absl::UnavailableError(absl::StrCat(what, ": the peer has closed"));
  return errno == EAGAIN || errno == EINTR ? absl::OkStatus() : Failure(what);
}

}  // namespace

Socket::~Socket() {
  if (file_ >= 0) close(file_);
}

absl::StatusOr<Socket> Socket::Listen() {
  Socket socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_in address = Loopback(0);
  if (socket.file_ < 0 ||
      bind(socket.file_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ||
      listen(socket.file_, 16) != 0) {
    return Failure("listening on loopback");
  }
  return socket;
}

absl::StatusOr<Socket> Socket::Connect(int port) {
  Socket socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_in address = Loopback(port);
  if (socket.file_ < 0 ||
      connect(socket.file_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    return Failure(absl::StrCat("connecting to port ", port));
  }
  SetNoDelay(socket.file_);
  return socket;
}

absl::StatusOr<int> Socket::Port() const {
  sockaddr_in address{};
  socklen_t length = sizeof(address);
  if (getsockname(file_, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    return Failure("asking for the port");
  }
  return ntohs(address.sin_port);
}

absl::StatusOr<Socket> Socket::Accept(absl::Duration timeout) const {
  pollfd ready{.fd = file_, .events = POLLIN};
  if (poll(&ready, 1, static_cast<int>(absl::ToInt64Milliseconds(timeout))) == 0) {
    return absl::DeadlineExceededError(
        absl::StrCat("nobody connected within ", absl::FormatDuration(timeout)));
  }
  Socket socket(accept4(file_, nullptr, nullptr, SOCK_CLOEXEC));
  if (socket.file_ < 0) return Failure("accepting a connection");
  SetNoDelay(socket.file_);
  return socket;
}

absl::Status Socket::Exchange(std::vector<iovec> out, std::vector<iovec> in) {
  Pieces to_send(std::move(out)), to_receive(std::move(in));
  while (!to_send.done() || !to_receive.done()) {
    // With one direction alone the kernel waits; with two, whichever may go on does.
    const bool both = !to_send.done() && !to_receive.done();
    const int flags = both ? MSG_DONTWAIT : 0;
    bool moved = false;
    CAPSTAN_RETURN_IF_ERROR(Step(to_send, &moved, "sending", [&](const msghdr* header) {
      return sendmsg(file_, header, flags | MSG_NOSIGNAL);
    }));
    CAPSTAN_RETURN_IF_ERROR(Step(to_receive, &moved, "receiving",
                                 [&](msghdr* header) { return recvmsg(file_, header, flags); }));
    if (moved || !both) continue;
    pollfd ready{.fd = file_, .events = POLLIN | POLLOUT};
    poll(&ready, 1, -1);
  }
  return absl::OkStatus();
}

}  // namespace capstan::benchmark
