// DataCaller: the client's side of one data connection: starts calls and hands out their answers.
//
//   (none) --Start--> PENDING --answer, error-----------> done(it)
//                        |------Cancel------------------> done(kCancelled), the server is told
//                        |------deadline----------------> done(kDeadlineExceeded), likewise:
//                        |                                call_deadlines.h
//                        |------too large for a frame---> done(kResourceExhausted)
//                        '------connection lost, Close--> done(kUnavailable)
//
// A server that says nothing while calls are pending is asked for a sign of life;
// if none comes, the connection is lost (peer_watch.h). Thread safety: thread-safe.
#ifndef CAPSTAN_COMMON_NET_DATA_DATA_CALLER_H_
#define CAPSTAN_COMMON_NET_DATA_DATA_CALLER_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/cord.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/net/data/call_deadlines.h"
#include "common/net/data/peer_watch.h"
#include "common/net/frame/data_connection.h"
#include "common/net/frame/frame.h"
#include "common/net/frame/frame_reader.h"
#include "common/net/socket/socket_stream.h"
#include "common/time/clock.h"
#include "common/time/instant.h"

namespace capstan {

class DataCaller final : private DataConnection::Handler {
 public:
  // Called once, by the thread in Run, under no lock.
  using Done = std::function<void(absl::StatusOr<absl::Cord>)>;
  using CallId = uint64_t;

  // The server has been greeted (common/net/frame/data_socket.h); `clock` outlives this.
  DataCaller(std::unique_ptr<SocketStream> stream, const Clock* clock);

  bool usable() const { return connection_.usable(); }  // See DataConnection.
  // Runs until the connection ends; returns why. All calls have ended when it returns.
  absl::Status Run();
  void Close() { connection_.Close(); }  // Makes Run return. May be called before it.

  struct Request {
    DataMethod method = DataMethod::kPush;
    absl::Cord bytes;  // At most kMessageBytesMax; else the call ends with kResourceExhausted.
    // The call ends once it is as old as this, and nothing has moved on the connection for as long.
    absl::Duration timeout;
    absl::Duration patience;  // How long Start waits, in all, for a socket that is full.
    // Says where parts of the answer belong; null: anywhere. Nothing is written there once `done`
    // is called.
    std::shared_ptr<PayloadPlaces> places = nullptr;
  };
  // Starts a call. The thread in Run sends the bytes that the socket does not take at once. Returns
  // none if Run has ended; `done` is then not called.
  std::optional<CallId> Start(const Request& request, Done done);
  void Cancel(CallId call);  // Returns at once; calls that have ended are ignored.
  // Counts the bytes of calls and answers so far. It grows only while the peer is there.
  int64_t bytes_moved() const { return bytes_moved_.load(std::memory_order_relaxed); }

 private:
  struct Pending {
    Done done;
    std::shared_ptr<PayloadPlaces> places;
  };

  absl::Status OnFrame(const FrameHead& head, absl::Cord payload) override;
  std::shared_ptr<PayloadPlaces> PlacesOf(const FrameHead& head) override;
  absl::Status OnTick(Instant now, int64_t moved, Instant* next) override;
  // Removes a pending call and returns it; none if it has ended.
  std::optional<Pending> Take(CallId call);
  void GiveUp(CallId call, const absl::Status& status);
  std::vector<std::pair<CallId, absl::Status>> TakeOverdue(Instant now, int64_t moved);
  absl::Status CheckPeer(Instant now, int64_t moved);

  const Clock* const clock_;
  DataConnection connection_;

  absl::Mutex mutex_;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  CallId next_call_ ABSL_GUARDED_BY(mutex_) = 1;
  absl::flat_hash_map<CallId, Pending> pending_ ABSL_GUARDED_BY(mutex_);
  CallDeadlines deadlines_ ABSL_GUARDED_BY(mutex_);
  // Calls that the thread in Run is to end, and why.
  std::vector<std::pair<CallId, absl::Status>> given_up_ ABSL_GUARDED_BY(mutex_);
  Instant next_tick_ ABSL_GUARDED_BY(mutex_);
  // Used by the thread in Run.
  PeerWatch watch_;
  int64_t signs_of_life_ = 0;  // Bytes of pings and pongs.
  std::atomic<int64_t> bytes_moved_ = 0;
};

}  // namespace capstan

#endif  // CAPSTAN_COMMON_NET_DATA_DATA_CALLER_H_
