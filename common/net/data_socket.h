// TCP sockets of data connections: listening, connecting, and the greeting (frame.h).
//
// A dead peer that cannot say so is noticed by the kernel within some 15 s, as gRPC's pings do.
// Thread safety: functions without state.
#ifndef CAPSTAN_COMMON_NET_DATA_SOCKET_H_
#define CAPSTAN_COMMON_NET_DATA_SOCKET_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/net/host_port.h"
#include "common/net/socket_stream.h"
#include "common/storage/descriptor.h"

namespace capstan {

struct ListeningSocket {
  Descriptor socket;
  int port = 0;  // The real one.
};
// Errors: kInvalidArgument  `listen` is not host:port, or the host is not known.
//         kAlreadyExists    the port is in use, or the address is not this host's; names it.
absl::StatusOr<ListeningSocket> ListenForData(const std::string& listen);

// One connection, without waiting; below 0: none waits. It is set up as both ends of a data
// connection are.
Descriptor AcceptData(int listening);

// Connects, makes a stream over the socket, presents `token` and `capability` (empty: none), and
// waits for the greeting. `stop` becoming readable ends that. REQUIRES: the capability has at most
// kCapabilityBytesMax bytes.
// Errors: kUnavailable       it cannot be reached, closes or says something else within `timeout`,
//                            or the wait was stopped; says what happened.
//         kPermissionDenied  its certificate names another server.   And those of `make`.
using StreamMaker = std::function<absl::StatusOr<std::unique_ptr<SocketStream>>(Descriptor socket)>;
absl::StatusOr<std::unique_ptr<SocketStream>> ConnectForData(const HostPort& server,
                                                             absl::string_view token,
                                                             absl::Duration timeout, int stop,
                                                             const StreamMaker& make = PlainStream,
                                                             absl::string_view capability = "");

// The server's side of the greeting. It greets back once `admit`, if there is one, has accepted the
// client's capability.
// Errors: kUnavailable  as above.   kInvalidArgument  it is no greeting.
//         kPermissionDenied  another token, or no certificate of this cluster.   Those of `admit`.
using AdmitClient = std::function<absl::Status(const std::string& capability)>;
absl::Status GreetClient(SocketStream& stream, absl::string_view token, absl::Duration timeout,
                         int stop, const AdmitClient& admit = nullptr);

// host:port of the other end, for people.
std::string PeerName(int socket);

// Errors: kInternal  the system has no random numbers.
absl::StatusOr<std::string> MakeToken();

}  // namespace capstan

#endif  // CAPSTAN_COMMON_NET_DATA_SOCKET_H_
