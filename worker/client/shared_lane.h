// SharedLane: the memory that a client shares with one server of its host, and who uses which part.
//
//              Offer                 proof                      server gone, Abandon, SetSize
//   (nothing) -------> OFFERED ----------------------> OPEN ------------------------> (nothing)
//       ^                 '--refused, not this host--> (nothing), for good                |
//       '---------------------- offered again, a second later at the earliest ------------'
//
// A segment is one stream's: whichever side goes, the other one notices by its end. Half of it is
// for pushes, half for pulls, so that pulls that wait at the server keep no push from its way.
// Thread safety: thread-safe.
#ifndef CAPSTAN_WORKER_CLIENT_SHARED_LANE_H_
#define CAPSTAN_WORKER_CLIENT_SHARED_LANE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "common/net/call_tracker.h"
#include "common/shared_memory/shared_values.h"
#include "common/time/instant.h"
#include "proto/parameter_server.grpc.pb.h"

namespace capstan::worker {

class SharedLane {
  class Segment;

 public:
  // Shared with one server unless its caller says otherwise: both directions together.
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
    // The server may still use it, as nobody knows what became of the message: all memory of this
    // segment is left to it, and a new one is offered.
    void Abandon();

   private:
    friend class SharedLane;
    std::shared_ptr<Segment> segment_;
    Direction direction_ = Direction::kPush;
    MessageRoom room_;
  };

  struct Options {
    v1::ParameterServer::Stub* stub = nullptr;  // Outlives the lane.
    std::string server;                         // For people.
    // What Take or MustWait say may have changed. Called under no lock of the lane, from any
    // thread.
    std::function<void()> on_change;
  };
  explicit SharedLane(Options options);
  ~SharedLane() { Close(); }
  SharedLane(const SharedLane&) = delete;
  SharedLane& operator=(const SharedLane&) = delete;

  // Bytes to be shared, both directions together; 0: none. A segment of less than half is replaced.
  void SetSize(int64_t bytes);
  // It is time for Offer.
  bool WantsOffer(Instant now) const;
  // Starts a call: not to be called under a lock that on_change takes.
  void Offer(Instant now);

  // Ends the streams and waits until they and all leases are gone. Later offers are not made.
  // Idempotent.
  void Close();

  // Room for the values of one message; none if nothing is open or free.
  Lease Take(Direction direction, int64_t bytes);
  // There is no room now, and there will be once others have given theirs back.
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
  CallTracker tracker_;  // Of segments.
};

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_CLIENT_SHARED_LANE_H_
