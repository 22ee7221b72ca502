#include "common/net/data_socket.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/net/frame.h"
#include "common/status/status_macros.h"

namespace capstan {
namespace {

constexpr int kBacklog = 128;
constexpr int kIdleSeconds = 10, kProbeSeconds = 5, kProbes = 1;
constexpr int kUnansweredMillis = 15'000;
constexpr absl::string_view kHello(kGreeting, sizeof(kGreeting));

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

absl::StatusOr<Addresses> Resolve(const HostPort& address, int flags) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* found = nullptr;
  const int rc =
      getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hints, &found);
  if (rc == 0) return Addresses(found, &freeaddrinfo);
  return absl::InvalidArgumentError(
      absl::StrCat("host \"", address.host, "\": ", gai_strerror(rc)));
}

absl::Status KernelError(absl::string_view what) {
  return absl::UnavailableError(absl::StrCat(what, ": ", std::strerror(errno)));
}

void SetUp(int socket) {
  const auto set = [socket](int level, int option, int value) {
    setsockopt(socket, level, option, &value, sizeof(value));
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, kIdleSeconds);
  set(IPPROTO_TCP, TCP_KEEPINTVL, kProbeSeconds);
  set(IPPROTO_TCP, TCP_KEEPCNT, kProbes);
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, kUnansweredMillis);
}

// Waits for `events`. Errors: the time is over, or `stop` has become readable.
absl::Status Await(int socket, short events, absl::Time until, int stop) {
  for (;;) {
    pollfd files[] = {{.fd = socket, .events = events, .revents = 0},
                      {.fd = stop, .events = POLLIN, .revents = 0}};
    const absl::Duration left = until - absl::Now();
    if (left <= absl::ZeroDuration()) return absl::UnavailableError("no answer in time");
    const int ready = poll(files, 2, static_cast<int>(absl::ToInt64Milliseconds(left)) + 1);
    if (ready < 0 && errno != EINTR) return KernelError("poll");
    if (ready > 0 && files[1].revents != 0) return absl::UnavailableError("stopped");
    if (ready > 0) return absl::OkStatus();
  }
}

absl::Status SendAll(int socket, absl::string_view bytes, absl::Time until, int stop) {
  while (!bytes.empty()) {
    CAPSTAN_RETURN_IF_ERROR(Await(socket, POLLOUT, until, stop));
    const ssize_t sent = send(socket, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 && errno != EAGAIN && errno != EINTR) return KernelError("sending");
    if (sent > 0) bytes.remove_prefix(static_cast<size_t>(sent));
  }
  return absl::OkStatus();
}

// Receives exactly `size` bytes and not one more, since frames may follow.
absl::StatusOr<std::string> ReceiveAll(int socket, size_t size, absl::Time until, int stop) {
  std::string bytes(size, '\0');
  for (size_t got = 0; got < size;) {
    CAPSTAN_RETURN_IF_ERROR(Await(socket, POLLIN, until, stop));
    const ssize_t received = recv(socket, &bytes[got], size - got, MSG_DONTWAIT);
    if (received == 0) return absl::UnavailableError("the peer has closed the connection");
    if (received < 0 && errno != EAGAIN && errno != EINTR) return KernelError("receiving");
    if (received > 0) got += static_cast<size_t>(received);
  }
  return bytes;
}

absl::Status ConnectTo(int socket, const addrinfo& address, absl::Time until, int stop) {
  if (connect(socket, address.ai_addr, address.ai_addrlen) == 0) return absl::OkStatus();
  if (errno != EINPROGRESS) return KernelError("connecting");
  CAPSTAN_RETURN_IF_ERROR(Await(socket, POLLOUT, until, stop));
  int error = 0;
  socklen_t size = sizeof(error);
  getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &size);
  errno = error;
  return error == 0 ? absl::OkStatus() : KernelError("connecting");
}

int NewSocket(const addrinfo& address) {
  return socket(address.ai_family, address.ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK,
                address.ai_protocol);
}

}  // namespace

absl::StatusOr<ListeningSocket> ListenForData(const std::string& listen_at) {
  CAPSTAN_ASSIGN_OR_RETURN(const HostPort wished, ParseHostPort(listen_at));
  const absl::StatusOr<Addresses> addresses = Resolve(wished, AI_PASSIVE);
  if (!addresses.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot listen on ", listen_at, ": ", addresses.status().message()));
  }
  int error = EADDRNOTAVAIL;
  for (const addrinfo* a = addresses->get(); a != nullptr; a = a->ai_next) {
    Descriptor socket(NewSocket(*a));
    const int on = 1;  // Allows a port that still has dying connections.
    setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    sockaddr_storage bound{};
    socklen_t size = sizeof(bound);
    if (bind(socket.get(), a->ai_addr, a->ai_addrlen) == 0 && listen(socket.get(), kBacklog) == 0 &&
        getsockname(socket.get(), reinterpret_cast<sockaddr*>(&bound), &size) == 0) {
      // The port lies at the same place in IPv4 and IPv6 addresses.
      const int port = ntohs(reinterpret_cast<const sockaddr_in*>(&bound)->sin_port);
      return ListeningSocket{.socket = Descriptor(socket.Release()), .port = port};
    }
    error = errno;
  }
  return absl::AlreadyExistsError(
      absl::StrCat("cannot listen on ", listen_at, " for data: ", std::strerror(error)));
}

Descriptor AcceptData(int listening) {
  const int socket = accept4(listening, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (socket >= 0) SetUp(socket);
  return Descriptor(socket);
}

absl::StatusOr<Descriptor> ConnectForData(const HostPort& server, absl::string_view token,
                                          absl::Duration timeout, int stop) {
  const absl::Time until = absl::Now() + timeout;
  CAPSTAN_ASSIGN_OR_RETURN(const Addresses addresses, Resolve(server, 0));
  absl::Status status = absl::UnavailableError("no address");
  for (const addrinfo* a = addresses.get(); a != nullptr; a = a->ai_next) {
    Descriptor socket(NewSocket(*a));
    if (!socket.ok()) return KernelError("socket");
    status = ConnectTo(socket.get(), *a, until, stop);
    if (!status.ok()) continue;
    SetUp(socket.get());
    CAPSTAN_RETURN_IF_ERROR(SendAll(socket.get(), absl::StrCat(kHello, token), until, stop));
    CAPSTAN_ASSIGN_OR_RETURN(const std::string greeting,
                             ReceiveAll(socket.get(), kHello.size(), until, stop));
    if (greeting != kHello) return absl::UnavailableError("it greets as nothing that is known");
    return socket;
  }
  return status;
}

absl::Status GreetClient(int socket, absl::string_view token, absl::Duration timeout, int stop) {
  const absl::Time until = absl::Now() + timeout;
  CAPSTAN_ASSIGN_OR_RETURN(const std::string said,
                           ReceiveAll(socket, kHello.size() + token.size(), until, stop));
  if (absl::string_view(said).substr(0, kHello.size()) != kHello) {
    return absl::InvalidArgumentError("it greets as nothing that is known");
  }
  if (!SameToken(absl::string_view(said).substr(kHello.size()), token)) {
    return absl::PermissionDeniedError("it has another token than this server told");
  }
  return SendAll(socket, kHello, until, stop);
}

std::string PeerName(int socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  std::array<char, NI_MAXHOST> host{};
  std::array<char, NI_MAXSERV> port{};
  auto* raw = reinterpret_cast<sockaddr*>(&address);
  if (getpeername(socket, raw, &size) != 0 ||
      getnameinfo(raw, size, host.data(), host.size(), port.data(), port.size(),
                  NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return "a peer that is gone";
  }
  return absl::StrCat(host.data(), ":", port.data());
}

absl::StatusOr<std::string> MakeToken() {
  std::string token(kTokenBytes, '\0');
  if (getrandom(token.data(), token.size(), 0) == static_cast<ssize_t>(token.size())) return token;
  return absl::InternalError(absl::StrCat("getrandom: ", std::strerror(errno)));
}

}  // namespace capstan
