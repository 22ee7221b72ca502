#include "common/net/grpc/grpc_acceptor.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <utility>
#include <vector>

#include "common/net/socket/socket_stream.h"
#include "common/net/socket/start_thread.h"
#include "common/observability/log.h"
#include "common/process/descriptor_limit.h"
#include "common/status/status_macros.h"
#include "common/storage/files/descriptor.h"

namespace capstan {
namespace {

// The pause before the next attempt to accept, where no descriptor is left.
constexpr absl::Duration kNoDescriptorsPause = absl::Milliseconds(100);

ConnectionLimits::Options LimitsOf(const GrpcAcceptor::Options& options) {
  const int all = std::min(options.connections_max, DescriptorLimit() / 2);
  constexpr int kUnbounded = std::numeric_limits<int>::max();
  return {.connections_max = all,
          .connections_per_address_max = std::min(options.connections_per_address_max, all / 2),
          .unproven_max = kUnbounded,  // gRPC knows who is proven; here all are at once.
          .unproven_per_address_max = kUnbounded};
}

ino_t InodeOf(int descriptor) {
  struct stat file {};
  return fstat(descriptor, &file) == 0 && S_ISSOCK(file.st_mode) ? file.st_ino : 0;
}

}  // namespace

absl::StatusOr<std::unique_ptr<GrpcAcceptor>> GrpcAcceptor::Listen(const Options& options) {
  CAPSTAN_ASSIGN_OR_RETURN(ListeningSockets listening, ListenAtAll(options.listen));
  return std::unique_ptr<GrpcAcceptor>(new GrpcAcceptor(options, std::move(listening)));
}

GrpcAcceptor::GrpcAcceptor(const Options& options, ListeningSockets listening)
    : listening_(std::move(listening)), limits_(LimitsOf(options)) {}

absl::Status GrpcAcceptor::Start(std::unique_ptr<Server> server) {
  server_ = std::move(server);
  CAPSTAN_ASSIGN_OR_RETURN(thread_, StartThread([this] { Accept(); }));
  return absl::OkStatus();
}

void GrpcAcceptor::Stop() {
  if (stopped_.exchange(true)) return;
  wake_up_.Wake();
  if (thread_.joinable()) thread_.join();
  listening_.sockets.clear();
}

void GrpcAcceptor::Accept() {
  while (!stopped_) {
    const Instant now = clock_.Now();
    const bool accepts = accept_after_ <= now;
    std::vector<pollfd> files = {{.fd = wake_up_.descriptor(), .events = POLLIN, .revents = 0}};
    for (const Descriptor& socket : listening_.sockets) {
      files.push_back({.fd = accepts ? socket.get() : -1, .events = POLLIN, .revents = 0});
    }
    poll(files.data(), files.size(),
         PollMillis(accepts ? Instant::InfiniteFuture() : accept_after_, now));
    wake_up_.Clear(/*readable=*/files[0].revents != 0);
    for (size_t i = 1; i < files.size(); ++i) {
      if (files[i].revents != 0) AcceptOne(files[i].fd);
    }
  }
}

void GrpcAcceptor::AcceptOne(int listening) {
  const Instant now = clock_.Now();
  Descriptor socket = AcceptData(listening);
  if (!socket.ok()) {
    if (!MayAcceptAgain(errno)) accept_after_ = now + kNoDescriptorsPause;
    return;
  }
  const auto before = open_.find(socket.get());
  if (before != open_.end()) {  // gRPC has closed the connection that had this descriptor.
    limits_.Remove(before->second.id);
    open_.erase(before);
  }
  const ConnectionLimits::Id id = next_id_++;
  if (!Admit(id, socket.get(), now)) return LogRefused(socket.get(), now);
  open_[socket.get()] = {.id = id, .inode = InodeOf(socket.get())};
  Server::NewConnectionParameters connection;
  connection.listener_fd = listening;
  connection.fd = socket.Release();
  server_->HandleNewConnection(&connection);
}

bool GrpcAcceptor::Admit(ConnectionLimits::Id id, int socket, Instant now) {
  const std::string address = PeerNetwork(socket);
  bool refused = limits_.Add(id, address, now).has_value();
  if (refused && sweep_after_ <= now) {
    Sweep();
    sweep_after_ = now + kSweepEvery;
    refused = limits_.Add(id, address, now).has_value();
  }
  if (!refused) limits_.Prove(id);
  return !refused;
}

void GrpcAcceptor::Sweep() {
  for (auto it = open_.begin(); it != open_.end();) {
    const auto& [descriptor, connection] = *it;
    if (InodeOf(descriptor) == connection.inode) {
      ++it;
      continue;
    }
    limits_.Remove(connection.id);
    it = open_.erase(it);
  }
}

void GrpcAcceptor::LogRefused(int socket, Instant now) {
  ++refused_;
  if (now < log_after_) return;
  log_after_ = now + kLogEvery;
  LogWarning({},
             "{} connections were refused, the last one from {}: {} are open, or as many from its "
             "address as one may have",
             std::exchange(refused_, 0), PeerName(socket), limits_.count());
}

}  // namespace capstan
