// SharedMemoryConnection: the memory that a client shares with one server of its host; messages
// lease parts.
//
//              Offer                 proof                      server gone, Abandon, SetSize
//   (nothing) -------> OFFERED ----------------------> OPEN ------------------------> (nothing)
//       ^                 '--refused, not this host--> (nothing), for good                |
//       '---------------------- offered again, a second later at the earliest ------------'
//
// Each segment belongs to one stream: when one side dies, the stream ends and the other side
// notices. One half of a segment is for pushes, the other for pulls, so that pulls that wait at the
// server hold back no push.
// Thread safety: thread-safe.
#ifndef CAPSTAN_WORKER_CLIENT_TRANSPORT_SHARED_MEMORY_CONNECTION_H_
#define CAPSTAN_WORKER_CLIENT_TRANSPORT_SHARED_MEMORY_CONNECTION_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "common/net/data/call_tracker.h"
#include "common/shared_memory/shared_values.h"
#include "common/time/instant.h"
#include "proto/parameter_server.grpc.pb.h"

namespace capstan::worker {

class SharedMemoryConnection {
  class Segment;

 public:
  // The default size of the memory shared with one server, both directions together.
  static constexpr int64_t kBytesDefault = 32 << 20;

  enum class Direction { kPush, kPull };

  // A part of the memory, given back when it is destroyed.
  class Lease {
   public:
    Lease() = default;  // None.
    Lease(Lease&& other) noexcept;
    Lease& operator=(Lease&& other) noexcept;
    ~Lease() { GiveBack(); }

    explicit operator bool() const { return segment_ != nullptr; }
    const MessageRoom& room() const { return room_; }
    void GiveBack();
    // Gives it up although the server may still use it, because the message's outcome is unknown:
    // this segment's memory is not leased again, and a new segment is offered.
    void Abandon();

   private:
    friend class SharedMemoryConnection;
    std::shared_ptr<Segment> segment_;
    Direction direction_ = Direction::kPush;
    MessageRoom room_;
  };

  struct Options {
    v1::ParameterServer::Stub* stub = nullptr;  // Outlives the connection.
    std::string server;                         // The server's name in the log.
    // Called when the results of Take or MustWait may have changed, under no lock of the
    // connection, from any thread.
    std::function<void()> on_change;
    std::function<std::string()> capability = nullptr;  // The newest; null: there is none.
  };
  explicit SharedMemoryConnection(Options options);
  ~SharedMemoryConnection() { Close(); }
  SharedMemoryConnection(const SharedMemoryConnection&) = delete;
  SharedMemoryConnection& operator=(const SharedMemoryConnection&) = delete;

  // Sets the bytes to share, both directions together; 0: none. Replaces a segment of less than
  // half that size.
  void SetSize(int64_t bytes);
  // True if it is time for Offer.
  bool WantsOffer(Instant now) const;
  // Starts a call: must not be called under a lock that on_change takes.
  void Offer(Instant now);

  // Ends the streams and waits until they and all leases are gone. Makes no offers afterwards.
  // Idempotent.
  void Close();

  // Leases room for the values of one message; none if no segment is open or no room is free.
  Lease Take(Direction direction, int64_t bytes);
  // True if there is no room now, but there will be when others have given theirs back.
  bool MustWait(Direction direction, int64_t bytes) const;

 private:
  void OnOpen(const Segment& segment);
  void OnDone(const Segment& segment, const absl::Status& status);
  std::shared_ptr<Segment> Current() const;

  const Options options_;
  mutable absl::Mutex mutex_;
  int64_t size_ ABSL_GUARDED_BY(mutex_) = 0;
  std::shared_ptr<Segment> segment_ ABSL_GUARDED_BY(mutex_);  // Null: none is offered or open.
  bool refused_ ABSL_GUARDED_BY(mutex_) = false;
  Instant next_offer_ ABSL_GUARDED_BY(mutex_);
  CallTracker tracker_;  // Tracks segments.
};

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_CLIENT_TRANSPORT_SHARED_MEMORY_CONNECTION_H_
