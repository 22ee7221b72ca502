#include "common/net/frame/data_socket.h"

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
#include "common/net/frame/frame.h"
#include "common/security/capability.h"
#include "common/status/status_macros.h"
#include "common/storage/little_endian.h"

namespace capstan {
namespace {

constexpr int kBacklog = 4096;  // The kernel allows no more than net.core.somaxconn.
constexpr int kIdleSeconds = 10, kProbeSeconds = 5, kProbes = 1;
constexpr int kUnansweredMillis = 15'000;
constexpr absl::string_view kHello(kGreeting, sizeof(kGreeting));
// Greeting, token and the length of the capability, which follows.
constexpr size_t kHelloHeadBytes = kHello.size() + kTokenBytes + kGreetingLengthBytes;

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

absl::Status SendAll(SocketStream& stream, absl::string_view bytes, absl::Time until, int stop) {
  while (!bytes.empty()) {
    const iovec piece{.iov_base = const_cast<char*>(bytes.data()), .iov_len = bytes.size()};
    CAPSTAN_ASSIGN_OR_RETURN(const size_t sent, stream.Send({&piece, 1}));
    bytes.remove_prefix(sent);
    if (sent == 0) {
      CAPSTAN_RETURN_IF_ERROR(AwaitSocket(stream.socket(), POLLOUT, until, stop));
    }
  }
  return absl::OkStatus();
}

absl::Status Authenticate(SocketStream& stream, absl::Time until, int stop) {
  for (;;) {
    CAPSTAN_ASSIGN_OR_RETURN(const short events, stream.Handshake());
    if (events == 0) return absl::OkStatus();
    CAPSTAN_RETURN_IF_ERROR(AwaitSocket(stream.socket(), events, until, stop));
  }
}

// Receives exactly `size` bytes and not one more, since frames may follow.
absl::StatusOr<std::string> ReceiveAll(SocketStream& stream, size_t size, absl::Time until,
                                       int stop) {
  std::string bytes(size, '\0');
  for (size_t got = 0; got < size;) {
    const iovec place{.iov_base = &bytes[got], .iov_len = size - got};
    CAPSTAN_ASSIGN_OR_RETURN(const size_t received, stream.Receive({&place, 1}));
    got += received;
    if (received == 0) {
      CAPSTAN_RETURN_IF_ERROR(AwaitSocket(stream.socket(), POLLIN, until, stop));
    }
  }
  return bytes;
}

absl::Status ConnectTo(int socket, const addrinfo& address, absl::Time until, int stop) {
  if (connect(socket, address.ai_addr, address.ai_addrlen) == 0) return absl::OkStatus();
  if (errno != EINPROGRESS) return KernelError("connecting");
  CAPSTAN_RETURN_IF_ERROR(AwaitSocket(socket, POLLOUT, until, stop));
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

absl::StatusOr<ListeningSockets> ListenAtAll(const std::string& listen_at) {
  CAPSTAN_ASSIGN_OR_RETURN(const HostPort wished, ParseHostPort(listen_at));
  const absl::StatusOr<Addresses> addresses = Resolve(wished, AI_PASSIVE);
  if (!addresses.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot listen on ", listen_at, ": ", addresses.status().message()));
  }
  ListeningSockets listening{.sockets = {}, .port = wished.port};
  int error = EADDRNOTAVAIL;
  for (const addrinfo* a = addresses->get(); a != nullptr; a = a->ai_next) {
    Descriptor socket(NewSocket(*a));
    const int on = 1;  // Allows a port that still has dying connections.
    setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    // The port lies at the same place in IPv4 and IPv6 addresses. All get the one of the first.
    reinterpret_cast<sockaddr_in*>(a->ai_addr)->sin_port =
        htons(static_cast<uint16_t>(listening.port));
    sockaddr_storage bound{};
    socklen_t size = sizeof(bound);
    if (bind(socket.get(), a->ai_addr, a->ai_addrlen) == 0 && listen(socket.get(), kBacklog) == 0 &&
        getsockname(socket.get(), reinterpret_cast<sockaddr*>(&bound), &size) == 0) {
      listening.port = ntohs(reinterpret_cast<const sockaddr_in*>(&bound)->sin_port);
      listening.sockets.push_back(std::move(socket));
      continue;
    }
    error = errno;
    if (error == EADDRINUSE && listening.sockets.empty()) break;
  }
  if (!listening.sockets.empty()) return listening;
  return absl::AlreadyExistsError(absl::StrCat(
      "cannot listen on ", listen_at, ": ",
      error == EADDRINUSE ? "the port is in use by another process; choose another one, or port 0 "
                            "for any free one"
                          : std::strerror(error)));
}

absl::StatusOr<ListeningSocket> ListenForData(const std::string& listen_at) {
  CAPSTAN_ASSIGN_OR_RETURN(ListeningSockets all, ListenAtAll(listen_at));
  return ListeningSocket{.socket = std::move(all.sockets.front()), .port = all.port};
}

Descriptor AcceptData(int listening) {
  const int socket = accept4(listening, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (socket >= 0) SetUp(socket);
  return Descriptor(socket);
}

bool MayAcceptAgain(int error) {
  // accept(2) reports errors of the new connection, too.
  return error != EMFILE && error != ENFILE && error != ENOBUFS && error != ENOMEM;
}

absl::StatusOr<std::unique_ptr<SocketStream>> ConnectForData(const HostPort& server,
                                                             absl::string_view token,
                                                             absl::Duration timeout, int stop,
                                                             const StreamMaker& make,
                                                             absl::string_view capability) {
  std::string hello = absl::StrCat(kHello, token);
  PutLittleEndian(static_cast<uint16_t>(capability.size()), &hello);
  absl::StrAppend(&hello, capability);
  const absl::Time until = absl::Now() + timeout;
  CAPSTAN_ASSIGN_OR_RETURN(const Addresses addresses, Resolve(server, 0));
  absl::Status status = absl::UnavailableError("no address");
  for (const addrinfo* a = addresses.get(); a != nullptr; a = a->ai_next) {
    Descriptor socket(NewSocket(*a));
    status = socket.ok() ? ConnectTo(socket.get(), *a, until, stop) : KernelError("socket");
    if (!status.ok()) continue;
    SetUp(socket.get());
    CAPSTAN_ASSIGN_OR_RETURN(std::unique_ptr<SocketStream> stream, make(std::move(socket)));
    CAPSTAN_RETURN_IF_ERROR(Authenticate(*stream, until, stop));
    CAPSTAN_RETURN_IF_ERROR(SendAll(*stream, hello, until, stop));
    CAPSTAN_ASSIGN_OR_RETURN(const std::string greeting,
                             ReceiveAll(*stream, kHello.size(), until, stop));
    if (greeting != kHello) return absl::UnavailableError("it greets as nothing that is known");
    return stream;
  }
  return status;
}

absl::StatusOr<short> HelloReader::Continue(SocketStream& stream) {
  if (!authenticated_) {
    CAPSTAN_ASSIGN_OR_RETURN(const short events, stream.Handshake());
    if (events != 0) return events;
    authenticated_ = true;
  }
  for (;;) {
    CAPSTAN_ASSIGN_OR_RETURN(const size_t whole, WholeSize());
    const size_t had = hello_.size();
    if (had == whole) return short{0};
    hello_.resize(whole);  // Not one byte more is received, since frames may follow.
    const iovec rest{.iov_base = hello_.data() + had, .iov_len = whole - had};
    const absl::StatusOr<size_t> received = stream.Receive({&rest, 1});
    hello_.resize(had + received.value_or(0));
    if (!received.ok()) return received.status();
    if (*received == 0) return short{POLLIN};
  }
}

absl::StatusOr<size_t> HelloReader::WholeSize() const {
  if (hello_.size() < kHelloHeadBytes) return kHelloHeadBytes;
  const size_t size = GetLittleEndian<uint16_t>(hello_, kHelloHeadBytes - kGreetingLengthBytes);
  if (size <= kCapabilityBytesMax) return kHelloHeadBytes + size;
  return absl::InvalidArgumentError(absl::StrCat("it greets with a capability of ", size,
                                                 " bytes, expected at most ", kCapabilityBytesMax));
}

std::string HelloReader::capability() const { return hello_.substr(kHelloHeadBytes); }

absl::Status CheckHello(absl::string_view hello, absl::string_view token) {
  if (hello.substr(0, kHello.size()) != kHello) {
    return absl::InvalidArgumentError("it greets as nothing that is known");
  }
  if (!SameToken(hello.substr(kHello.size(), kTokenBytes), token)) {
    return absl::PermissionDeniedError("it has another token than this server told");
  }
  return absl::OkStatus();
}

absl::Status AnswerHello(SocketStream& stream, absl::Duration timeout, int stop) {
  return SendAll(stream, kHello, absl::Now() + timeout, stop);
}

std::string PeerNetwork(int socket) {
  constexpr size_t kIpv6NetworkBytes = 8;
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  if (getpeername(socket, reinterpret_cast<sockaddr*>(&address), &size) != 0) return "";
  const auto bytes = [](const void* begin, size_t count) {
    return std::string(static_cast<const char*>(begin), count);
  };
  if (address.ss_family == AF_INET) {
    const in_addr& v4 = reinterpret_cast<const sockaddr_in*>(&address)->sin_addr;
    return bytes(&v4, sizeof(v4));
  }
  const in6_addr& v6 = reinterpret_cast<const sockaddr_in6*>(&address)->sin6_addr;
  if (IN6_IS_ADDR_V4MAPPED(&v6)) return bytes(&v6.s6_addr[12], sizeof(in_addr));
  return bytes(&v6, kIpv6NetworkBytes);
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
