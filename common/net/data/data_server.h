// DataServer: answers calls that come over data connections, beside a gRPC server
// (common/net/frame/frame.h).
//
//   connection:  accepted --TLS, greeting, token--> SERVING --peer gone, garbage, expired, Stop-->
//                    \--none in 5 s, another token,               its calls are cancelled, closed
//                       not admitted, no room--> closed
//
// One thread accepts connections, and does the handshakes and greetings of all of them
// (ConnectionLimits bounds how many there are, and for how long), so that a stranger costs no
// thread. A connection whose peer is authenticated gets a thread, which reads its requests and runs
// the handler itself. The thread that finishes a call writes its answer. The connection's thread
// writes the bytes that the socket does not take at once, and the large answers of calls that had
// to wait. So a slow reader holds up only itself: nothing more is read from it while 64 MiB of
// answers wait. If the machine has no thread to give, the connection is closed, and its calls go
// over gRPC.
// Thread safety: thread-safe.
#ifndef CAPSTAN_COMMON_NET_DATA_DATA_SERVER_H_
#define CAPSTAN_COMMON_NET_DATA_DATA_SERVER_H_

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/cord.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/net/frame/data_socket.h"
#include "common/net/frame/frame.h"
#include "common/net/grpc/credentials.h"
#include "common/net/socket/connection_limits.h"
#include "common/net/socket/start_thread.h"
#include "common/net/socket/wake_up.h"
#include "common/security/audit_log.h"
#include "common/security/certificates/identity.h"
#include "common/time/clock.h"
#include "common/time/instant.h"

namespace capstan {

class DataServer {
 public:
  // Most open calls of one connection. Further ones are answered with kResourceExhausted.
  static constexpr size_t kOpenCallsMax = 65'536;
  static constexpr absl::Duration kGreetingWithin = absl::Seconds(5);
  // A connection has two descriptors, so all of them together have a quarter of the process's
  // limit.
  static constexpr int kDescriptorsPerConnection = 8;

  // Called exactly once per call, from any thread.
  using Done = std::function<void(absl::StatusOr<absl::Cord>)>;
  using Cancel = std::function<void()>;
  // Begins a call, without waiting; `done` may be called before it returns. Otherwise it returns a
  // function that ends the call soon, and does nothing if the call has ended meanwhile.
  using Handler = std::function<Cancel(DataMethod, absl::Cord, Done)>;
  // The rights of one connection. `handler` gets its calls. The first call from `until` on, by the
  // wall clock, ends the connection: its client then opens another one.
  struct Admitted {
    Handler handler;
    absl::Time until = absl::InfiniteFuture();
  };
  // Judges the capability of a greeting; it is empty if the client has none. `caller`: the identity
  // in the connection's certificate; none without credentials. An error refuses the connection.
  using Admit = std::function<absl::StatusOr<Admitted>(const std::string& capability,
                                                       const std::optional<Identity>& caller)>;

  struct Options {
    std::string listen;  // host:port; port 0 picks a free one.
    Handler handler;     // Takes the calls of all connections, if `admit` is null.
    Admit admit = nullptr;
    // Connections are encrypted, and each call passes the CallGate. Null: plain text.
    const Credentials* credentials = nullptr;  // Outlives the server.
    AuditLog* audit = nullptr;   // Records what is refused; outlives the server. Null: logs only.
    int connections_max = 4096;  // Fewer where descriptors are scarce.
    // A connection that gets no thread is closed.
    ThreadStarter start_thread = StartThread;
  };
  // Errors: those of ListenForData, MakeToken and StartThread.
  static absl::StatusOr<std::unique_ptr<DataServer>> Start(Options options);
  ~DataServer() { Stop(); }

  int port() const { return listening_.port; }
  const std::string& token() const { return token_; }         // A caller must greet with it.
  int connections() const { return serving_; }                // Greeted and open.
  int64_t damaged_frames() const { return damaged_frames_; }  // Each has ended its connection.

  // Closes all connections; no call of the handler runs, and none is open, from then on.
  // Idempotent.
  void Stop();

 private:
  static constexpr absl::Duration kLogEvery = absl::Seconds(1);

  class Peer;
  struct Connection {
    std::shared_ptr<Peer> peer;  // Shared with the calls that it has open.
    std::thread thread;
  };

  // A connection whose peer has not shown yet who it is. It has a stream once the peer has said
  // something, since a stranger that says nothing should not cost the memory and time of TLS.
  struct Newcomer {
    std::string name;                      // PeerName.
    Descriptor socket;                     // None once there is a stream, which owns it.
    std::unique_ptr<SocketStream> stream;  // Null at first.
    HelloReader hello;
    short events = 0;  // The events of poll(2) that it waits for.
  };
  using Id = ConnectionLimits::Id;

  DataServer(Options options, ListeningSocket listening, std::string token);
  void Accept();
  void Poll();
  void AcceptOne(Instant now);
  void Greet(Id id);
  absl::StatusOr<short> Hear(Id id, Newcomer& newcomer);
  absl::Status StartServing(Id id, const std::string& capability,
                            std::unique_ptr<SocketStream> stream);
  void Serve(Id id, const std::shared_ptr<Peer>& peer);
  void LogEnd(const std::string& name, const absl::Status& status);
  // Records a newcomer that was refused, if that is worth a line. `stream`: null: it said nothing.
  void NotGreeted(const std::string& name, const SocketStream* stream, const absl::Status& status);
  void JoinEnded();

  const Options options_;
  const ListeningSocket listening_;
  const std::string token_;
  const SteadyClock clock_;
  std::atomic<int> serving_ = 0;
  std::atomic<int64_t> damaged_frames_ = 0;
  WakeUp wake_up_;  // Wakes the thread that accepts.
  WakeUp stop_;     // Wakes the threads that answer a greeting; never cleared.

  // Used by the thread that accepts.
  ConnectionLimits limits_;
  std::map<Id, Newcomer> newcomers_;
  Id next_id_ = 0;
  Instant accept_after_;

  absl::Mutex mutex_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::map<Id, Connection> connections_ ABSL_GUARDED_BY(mutex_);
  std::vector<Id> ended_ ABSL_GUARDED_BY(mutex_);  // Threads to be joined.
  Instant logged_ ABSL_GUARDED_BY(mutex_) = Instant() - kLogEvery;
  int64_t not_logged_ ABSL_GUARDED_BY(mutex_) = 0;  // Ends since then.
  std::thread acceptor_;
};

}  // namespace capstan

#endif  // CAPSTAN_COMMON_NET_DATA_DATA_SERVER_H_
