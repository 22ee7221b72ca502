// DataConnectionPool: the data connections of a client to one server, beside gRPC
// (common/net/frame/frame.h).
//
//               Offer           port, token: a thread connects, greets     a connection lost
//   (nothing) ---------> ASKED over gRPC -----------------------> OPEN ------------> (nothing)
//      ^                  |  '--the server has none: (nothing), for good               |
//      |                  '--failed, cannot connect, no thread to be had: (nothing)    |
//      '--------- asked again after 1 s, doubling up to 30 s while it does not open ---'
//
// A worker has one connection for pulls, so that a small request to read never waits behind
// gradients, and as many for pushes as the server asks for, which has a thread for each. A primary
// has one connection to a replica. Each connection has a thread that reads its answers. If one
// connection ends, all of them end: their calls end as unavailable, and whoever repeats a call
// sends it over gRPC.
// Thread safety: thread-safe.
#ifndef CAPSTAN_COMMON_NET_DATA_DATA_CONNECTION_POOL_H_
#define CAPSTAN_COMMON_NET_DATA_DATA_CONNECTION_POOL_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/net/data/call_tracker.h"
#include "common/net/data/data_caller.h"
#include "common/net/frame/frame.h"
#include "common/net/grpc/credentials.h"
#include "common/net/socket/start_thread.h"
#include "common/net/socket/wake_up.h"
#include "common/time/clock.h"
#include "common/time/instant.h"
#include "proto/parameter_server.grpc.pb.h"

namespace capstan {

class DataConnectionPool {
 public:
  struct Options {
    v1::ParameterServer::Stub* stub = nullptr;  // Outlives the pool.
    std::string server;                         // host:port of its gRPC service.
    const Clock* clock = nullptr;               // Outlives the pool.
    bool enabled = true;
    bool to_replica = false;                   // One connection, for all methods.
    const Credentials* credentials = nullptr;  // Null: plain text. Outlives the pool.
    std::string node = {};                     // The server's node id; its certificate says it.
    ThreadStarter start_thread = StartThread;
    // The newest capability, for the question and the connections; null: there is none.
    std::function<std::string()> capability = nullptr;
  };
  explicit DataConnectionPool(Options options);
  ~DataConnectionPool() { Close(); }
  DataConnectionPool(const DataConnectionPool&) = delete;
  DataConnectionPool& operator=(const DataConnectionPool&) = delete;

  bool WantsOffer(Instant now) const;  // It is time for Offer.
  void Offer(Instant now);             // Asks the server, and returns at once.
  // Ends the connections and waits until they are gone. Later offers are not made. Idempotent.
  void Close();

  // Returns an open connection for a call of `method`; null: there is none. Pushes take turns.
  std::shared_ptr<DataCaller> For(DataMethod method);
  // Returns the bytes of calls and answers on the connections that are open; 0 if none is.
  int64_t BytesMoved() const;

 private:
  // One attempt to open connections: the question to the server, then the connections.
  struct Opening;
  // Shared with calls in flight. The first one is for pulls, or for all calls. Empty: none is open.
  using Callers = std::vector<std::shared_ptr<DataCaller>>;

  void OnAnswer(const std::shared_ptr<Opening>& opening, const absl::Status& status);
  void Serve(const std::shared_ptr<Opening>& opening);
  absl::StatusOr<Callers> Connect(const Opening& opening);
  void OnEnd(const absl::Status& status, bool was_open);
  void Join();

  const Options options_;
  CallTracker tracker_;  // Tracks the questions.
  WakeUp stop_;          // Ends connecting; never cleared.

  mutable absl::Mutex mutex_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  bool refused_ ABSL_GUARDED_BY(mutex_) = false;
  std::shared_ptr<Opening> opening_ ABSL_GUARDED_BY(mutex_);  // Null: nothing is asked or open.
  Callers open_ ABSL_GUARDED_BY(mutex_);
  uint64_t pushes_ ABSL_GUARDED_BY(mutex_) = 0;
  Instant next_offer_ ABSL_GUARDED_BY(mutex_);
  absl::Duration pause_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_ ABSL_GUARDED_BY(mutex_);  // Made by the last opening; may have ended.
};

}  // namespace capstan

#endif  // CAPSTAN_COMMON_NET_DATA_DATA_CONNECTION_POOL_H_
