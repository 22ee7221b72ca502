// ServerPeer: a real client's way to one server: connections, and the memory that both share.
//
// Thread safety: thread-safe, but for HasMoved, which one thread calls at a time.
#ifndef CAPSTAN_WORKER_CLIENT_SERVER_PEER_H_
#define CAPSTAN_WORKER_CLIENT_SERVER_PEER_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "common/net/channel.h"
#include "common/net/data_connection_pool.h"
#include "common/time/clock.h"
#include "common/time/instant.h"
#include "proto/parameter_server.grpc.pb.h"
#include "worker/client/client_call.h"
#include "worker/client/shared_memory_connection.h"

namespace capstan::worker {

class ServerPeer final : public Peer {
 public:
  // `on_change`: see SharedMemoryConnection. `clock` outlives it. If !data_connections, gRPC
  // carries all.
  ServerPeer(const std::string& address, const Clock* clock, bool data_connections,
             std::function<void()> on_change)
      : control_(v1::ParameterServer::NewStub(MakeChannel(address, ChannelKind::kControl))),
        shared_memory_(
            {.stub = control_.get(), .server = address, .on_change = std::move(on_change)}),
        data_pool_({.stub = control_.get(),
                    .server = address,
                    .clock = clock,
                    .enabled = data_connections}) {
    for (auto& stub : data_) {
      stub = v1::ParameterServer::NewStub(MakeChannel(address, ChannelKind::kData));
    }
  }

  v1::ParameterServer::Stub& NextData() { return *data_[next_.fetch_add(1) % data_.size()]; }
  v1::ParameterServer::Stub& control() { return *control_; }
  DataConnectionPool& data_pool() { return data_pool_; }
  // The bytes of values of all calls under way, to the server and from it.
  std::atomic<int64_t>& under_way() { return under_way_; }

  // ---- Peer
  bool MustWaitForRoom(OpKind kind, int64_t bytes) const override {
    return shared_memory_.MustWait(DirectionOf(kind), bytes);
  }
  void SetSharedBytes(int64_t bytes) override { shared_memory_.SetSize(bytes); }
  bool WantsOffer(Instant now) const override {
    return shared_memory_.WantsOffer(now) || data_pool_.WantsOffer(now);
  }
  // On data connections.
  bool HasMoved() override {
    const int64_t bytes = data_pool_.BytesMoved();
    return bytes > std::exchange(bytes_moved_, bytes);  // New connections begin at 0.
  }

  SharedMemoryConnection::Lease TakeRoom(OpKind kind, int64_t bytes) {
    return shared_memory_.Take(DirectionOf(kind), bytes);
  }
  // Offers the server to share memory, and opens data connections, where that is due.
  void Offer(Instant now) {
    if (shared_memory_.WantsOffer(now)) shared_memory_.Offer(now);
    data_pool_.Offer(now);
  }
  void Close() {  // Neither calls on_change any more, nor makes offers.
    shared_memory_.Close();
    data_pool_.Close();
  }

 private:
  static SharedMemoryConnection::Direction DirectionOf(OpKind kind) {
    return kind == OpKind::kPush ? SharedMemoryConnection::Direction::kPush
                                 : SharedMemoryConnection::Direction::kPull;
  }
  static constexpr size_t kConnections = 2;  // gRPC serves each by one thread at a time.

  std::array<std::unique_ptr<v1::ParameterServer::Stub>, kConnections> data_;
  std::atomic<size_t> next_ = 0;
  std::atomic<int64_t> under_way_ = 0;
  int64_t bytes_moved_ = 0;  // At the last HasMoved.
  const std::unique_ptr<v1::ParameterServer::Stub> control_;
  SharedMemoryConnection shared_memory_;
  DataConnectionPool data_pool_;
};

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_CLIENT_SERVER_PEER_H_
