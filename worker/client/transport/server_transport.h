// ServerTransport: the Transport of real clients: gRPC to one server and, if the server offers
// them, data connections and memory that both share.
//
// gRPC carries questions and offers, and values only while no data connection is open. A message
// over gRPC or a data connection names the place of its values in shared memory.
// Thread safety: thread-safe, but for HasMoved, which one thread calls at a time. A transfer's
// Cancel may be called at any time.
#ifndef CAPSTAN_WORKER_CLIENT_TRANSPORT_SERVER_TRANSPORT_H_
#define CAPSTAN_WORKER_CLIENT_TRANSPORT_SERVER_TRANSPORT_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_set.h"
#include "absl/synchronization/mutex.h"
#include "common/net/data/call_tracker.h"
#include "common/net/data/data_connection_pool.h"
#include "common/net/grpc/credentials.h"
#include "common/time/clock.h"
#include "common/time/instant.h"
#include "proto/parameter_server.grpc.pb.h"
#include "worker/client/transport/shared_memory_connection.h"
#include "worker/client/transport/transport.h"

namespace capstan::worker {

class ServerTransport final : public Transport {
 public:
  struct Options {
    std::string node;                          // The server's node id.
    std::string address;                       // host:port of its gRPC service.
    const Clock* clock = nullptr;              // Outlives the transport.
    const Credentials* credentials = nullptr;  // Null: plain text. Outlives the transport.
    bool data_connections = true;              // False: gRPC carries all.
    std::function<void()> on_change;           // See SharedMemoryConnection.
    // The newest capability, for every call and connection; null: there is none.
    std::function<std::string()> capability = nullptr;
  };
  explicit ServerTransport(const Options& options);
  ~ServerTransport() override { Close(); }
  ServerTransport(const ServerTransport&) = delete;
  ServerTransport& operator=(const ServerTransport&) = delete;

  // Cancels questions, and waits until they, all transfers and connections are gone; `on_change` is
  // not called afterwards. REQUIRES: the owners of transfers release them. Idempotent.
  void Close();

  std::shared_ptr<Transfer> NewTransfer(OpKind kind) override;
  void AskRouting(const JobId& job, absl::Duration timeout, RoutingDone done) override;
  bool MustWaitForRoom(OpKind kind, int64_t bytes) const override;
  void SetSharedBytes(int64_t bytes) override { shared_memory_.SetSize(bytes); }
  bool WantsOffer(Instant now) const override;
  // Offers the server to share memory, and opens data connections, if it is time for that.
  void Offer(Instant now) override;
  bool HasMoved() override;  // On data connections.

 private:
  class ServerTransfer;
  struct Question;
  static constexpr size_t kChannels = 2;  // gRPC serves each by one thread at a time.

  v1::ParameterServer::Stub& NextData() { return *data_[next_.fetch_add(1) % data_.size()]; }

  const std::function<std::string()> capability_;

  std::array<std::unique_ptr<v1::ParameterServer::Stub>, kChannels> data_;
  std::atomic<size_t> next_ = 0;
  // Bytes of values of all transfers under way, to the server and from it, beside shared memory.
  std::atomic<int64_t> under_way_ = 0;
  int64_t bytes_moved_ = 0;  // At the last HasMoved.
  const std::unique_ptr<v1::ParameterServer::Stub> control_;
  SharedMemoryConnection shared_memory_;
  DataConnectionPool data_pool_;
  CallTracker tracker_;  // Tracks transfers and questions.
  absl::Mutex mutex_;
  absl::flat_hash_set<std::shared_ptr<Question>> questions_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_CLIENT_TRANSPORT_SERVER_TRANSPORT_H_
