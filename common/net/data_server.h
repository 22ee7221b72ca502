// DataServer: answers calls that come over data connections (frame.h), beside a gRPC server.
//
//   connection:  accepted --TLS, greeting, token--> SERVING --peer gone, garbage, expired, Stop-->
//                    \--none in 5 s, another token,               its calls are cancelled, closed
//                       not admitted--> closed
//
// One thread a connection reads its requests and runs the handler itself; answers are written by
// whoever finishes the call, and what the socket does not take by the connection's thread. So a
// slow reader holds up only itself: nothing more is read of it while 64 MiB of answers wait. Where
// the machine has no thread to give, the connection is closed: its calls go by gRPC.
// Thread safety: thread-safe.
#ifndef CAPSTAN_COMMON_NET_DATA_SERVER_H_
#define CAPSTAN_COMMON_NET_DATA_SERVER_H_

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/btree_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/cord.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/net/credentials.h"
#include "common/net/data_socket.h"
#include "common/net/frame.h"
#include "common/net/start_thread.h"
#include "common/net/wake_up.h"
#include "common/time/clock.h"

namespace capstan {

class DataServer {
 public:
  // Calls of one connection: those beyond are answered with kResourceExhausted.
  static constexpr size_t kOpenCallsMax = 65'536;
  static constexpr absl::Duration kGreetingWithin = absl::Seconds(5);

  // Called exactly once per call, from any thread.
  using Done = std::function<void(absl::StatusOr<absl::Cord>)>;
  using Cancel = std::function<void()>;
  // Begins a call; `done` may be called before it returns. If it is not, returns what ends the call
  // soon, which does nothing if it has ended meanwhile. Does not wait.
  using Handler = std::function<Cancel(DataMethod, absl::Cord, Done)>;
  // What one connection may do: its calls are the handler's, and the first one from `until` on, by
  // the wall clock, ends the connection: its client goes on by another one.
  struct Admitted {
    Handler handler;
    absl::Time until = absl::InfiniteFuture();
  };
  // Judges the capability of a greeting; it is empty if the client has none. An error refuses the
  // connection.
  using Admit = std::function<absl::StatusOr<Admitted>(const std::string& capability)>;

  struct Options {
    std::string listen;  // host:port; port 0 picks a free one.
    Handler handler;     // Of all connections, if `admit` is null.
    Admit admit = nullptr;
    // Connections are encrypted, and each call passes the gate (credentials.h). Null: plain text.
    const Credentials* credentials = nullptr;  // Outlives the server.
    int connections_max = 4096;                // More are closed at once.
    // Connections that get no thread are closed, too.
    ThreadStarter start_thread = StartThread;
  };
  // Errors: those of ListenForData, MakeToken and StartThread.
  static absl::StatusOr<std::unique_ptr<DataServer>> Start(Options options);
  ~DataServer() { Stop(); }

  int port() const { return listening_.port; }
  const std::string& token() const { return token_; }         // Callers that may connect know it.
  int connections() const { return serving_; }                // Greeted and open.
  int64_t damaged_frames() const { return damaged_frames_; }  // Each has ended its connection.

  // Closes all connections; no call of the handler runs, and none is open, from then on.
  // Idempotent.
  void Stop();

 private:
  class Peer;
  struct Connection {
    std::shared_ptr<Peer> peer;  // Shared with the calls that it has open.
    std::thread thread;
  };

  DataServer(Options options, ListeningSocket listening, std::string token);
  void Accept();
  void AcceptOne();
  void Serve(int number, const std::shared_ptr<Peer>& peer);
  void JoinEnded();

  const Options options_;
  const ListeningSocket listening_;
  const std::string token_;
  const SteadyClock clock_;
  std::atomic<int> serving_ = 0;
  std::atomic<int64_t> damaged_frames_ = 0;
  WakeUp wake_up_;  // Wakes the thread that accepts.
  WakeUp stop_;     // Wakes the threads that greet; never cleared.

  absl::Mutex mutex_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  int next_number_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::btree_map<int, Connection> connections_ ABSL_GUARDED_BY(mutex_);
  std::vector<int> ended_ ABSL_GUARDED_BY(mutex_);  // Threads to be joined.
  std::thread acceptor_;
};

}  // namespace capstan

#endif  // CAPSTAN_COMMON_NET_DATA_SERVER_H_
