// TCP sockets: listening, connecting, and the greeting of data connections (frame.h).
//
// Within some 15 s the kernel notices a dead peer that cannot say so, as gRPC's pings do.
// Thread safety: functions without state.
#ifndef CAPSTAN_COMMON_NET_FRAME_DATA_SOCKET_H_
#define CAPSTAN_COMMON_NET_FRAME_DATA_SOCKET_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/net/socket/host_port.h"
#include "common/net/socket/socket_stream.h"
#include "common/storage/files/descriptor.h"

namespace capstan {

struct ListeningSockets {
  std::vector<Descriptor> sockets;  // At least one.
  int port = 0;                     // The same for all of them, never 0.
};
// Listens at every address of the host where that is possible.
// Errors: kInvalidArgument  `listen` is not host:port, or the host is not known.
//         kAlreadyExists    the port is in use, or the address is not this host's; names it.
absl::StatusOr<ListeningSockets> ListenAtAll(const std::string& listen);

struct ListeningSocket {
  Descriptor socket;
  int port = 0;  // Never 0.
};
// Same as ListenAtAll, at the first address alone.
absl::StatusOr<ListeningSocket> ListenForData(const std::string& listen);

// Accepts one connection, without waiting, and sets it up as both ends of a data connection are.
// Below 0: none waits, or errno says why not.
Descriptor AcceptData(int listening);
// Returns whether AcceptData failed, by `error` of errno, for a cause that is over at once, so that
// it may be called again; else the process or the machine is out of descriptors or memory.
bool MayAcceptAgain(int error);

// Connects, makes a stream over the socket, presents `token` and `capability` (empty: none), and
// waits for the greeting. `stop` becoming readable ends that. REQUIRES: the capability has at most
// kCapabilityBytesMax bytes.
// Errors: kUnavailable       the server is not reached, closes or says something else within
//                            `timeout`, or the wait was stopped; says what happened.
//         kPermissionDenied  its certificate names another server.
//         kInvalidArgument   the host is not known.   And those of `make`.
using StreamMaker = std::function<absl::StatusOr<std::unique_ptr<SocketStream>>(Descriptor socket)>;
absl::StatusOr<std::unique_ptr<SocketStream>> ConnectForData(const HostPort& server,
                                                             absl::string_view token,
                                                             absl::Duration timeout, int stop,
                                                             const StreamMaker& make = PlainStream,
                                                             absl::string_view capability = "");

// HelloReader: receives what a client says first, without waiting.
// Thread safety: thread-compatible.
class HelloReader {
 public:
  // Authenticates both ends of the stream, then receives the hello. Continues as far as it can and
  // returns the events of poll(2) that it waits for; 0: hello() is whole.
  // Errors: those of Handshake and Receive; kInvalidArgument  the capability is too long.
  absl::StatusOr<short> Continue(SocketStream& stream);
  absl::string_view hello() const { return hello_; }
  // The capability in a whole hello; empty: the client has none.
  std::string capability() const;

 private:
  // The size of the hello, as far as it is known.
  // Errors: kInvalidArgument  a capability longer than any is.
  absl::StatusOr<size_t> WholeSize() const;

  bool authenticated_ = false;
  std::string hello_;
};

// Judges a whole hello.
// Errors: kInvalidArgument   it is no greeting.
//         kPermissionDenied  another token.
absl::Status CheckHello(absl::string_view hello, absl::string_view token);

// Answers a hello that was found right. Errors: kUnavailable  as above.
absl::Status AnswerHello(SocketStream& stream, absl::Duration timeout, int stop);

// host:port of the other end, for people.
std::string PeerName(int socket);
// Bytes that connections from one host have in common: an IPv4 address, or the 64 bits of an IPv6
// address that a network gives to one link.
std::string PeerNetwork(int socket);

// Errors: kInternal  the system has no random numbers.
absl::StatusOr<std::string> MakeToken();

}  // namespace capstan

#endif  // CAPSTAN_COMMON_NET_FRAME_DATA_SOCKET_H_
