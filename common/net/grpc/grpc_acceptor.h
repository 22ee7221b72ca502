// GrpcAcceptor: accepts the connections of a gRPC server within bounds, and hands them to it.
//
// gRPC 1.51 accepts connections itself, too, but any number of them; and once accept(2) fails
// because the process is out of descriptors, its listener never accepts again. Here one thread
// accepts. It hands a connection on if its address and the process have room for it
// (ConnectionLimits), else it closes it. gRPC does the handshake, and closes a connection that does
// not finish it in time (grpc_server.cc). gRPC does not report the connections that it closes, so
// when there seems to be no room, the acceptor looks for descriptors that are no longer these
// sockets.
//
// Thread safety: thread-safe.
#ifndef CAPSTAN_COMMON_NET_GRPC_GRPC_ACCEPTOR_H_
#define CAPSTAN_COMMON_NET_GRPC_GRPC_ACCEPTOR_H_

#include <grpcpp/server_builder.h>
#include <sys/stat.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/net/frame/data_socket.h"
#include "common/net/socket/connection_limits.h"
#include "common/net/socket/wake_up.h"
#include "common/time/clock.h"
#include "common/time/instant.h"

namespace capstan {

class GrpcAcceptor {
 public:
  using Server = grpc::experimental::ExternalConnectionAcceptor;

  struct Options {
    std::string listen;  // host:port; port 0 picks a free one.
    // Fewer where descriptors are scarce: half of those that the process may have, and half of
    // these from one address.
    int connections_max = 8192;
    int connections_per_address_max = 1024;
  };
  // Errors: those of ListenAtAll.
  static absl::StatusOr<std::unique_ptr<GrpcAcceptor>> Listen(const Options& options);
  ~GrpcAcceptor() { Stop(); }

  int port() const { return listening_.port; }

  // Accepts from now on; earlier peers have waited until now. Errors: those of StartThread.
  absl::Status Start(std::unique_ptr<Server> server);
  void Stop();  // Accepts no more. Idempotent; Start does not follow.

 private:
  static constexpr absl::Duration kSweepEvery = absl::Milliseconds(100);
  static constexpr absl::Duration kLogEvery = absl::Seconds(10);

  struct Connection {
    ConnectionLimits::Id id = 0;
    ino_t inode = 0;  // Names the socket; a later file of the descriptor has another.
  };

  GrpcAcceptor(const Options& options, ListeningSockets listening);
  void Accept();
  void AcceptOne(int listening);
  // Returns whether there is room for the connection `id`, which is counted then.
  bool Admit(ConnectionLimits::Id id, int socket, Instant now);
  void Sweep();
  void LogRefused(int socket, Instant now);

  ListeningSockets listening_;
  const SteadyClock clock_;
  WakeUp wake_up_;
  std::atomic<bool> stopped_ = false;

  // Used by the thread that accepts.
  std::unique_ptr<Server> server_;
  ConnectionLimits limits_;
  ConnectionLimits::Id next_id_ = 0;
  std::map<int, Connection> open_;  // By descriptor. Some may be closed.
  Instant accept_after_, sweep_after_, log_after_;
  int64_t refused_ = 0;  // Since the last line.

  std::thread thread_;
};

}  // namespace capstan

#endif  // CAPSTAN_COMMON_NET_GRPC_GRPC_ACCEPTOR_H_
