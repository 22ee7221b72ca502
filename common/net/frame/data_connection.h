// DataConnection: frames both ways over one stream, read by one thread.
//
// The thread in Run reads frames and hands them to its handler; any thread sends. The thread in Run
// also writes the bytes that the socket does not take at once, so that a sender never waits longer
// than its patience in all. While more than `queued_bytes_max` is queued, nothing is read: so a
// peer that asks and does not read answers makes this process hold no more than that and what its
// calls hold.
// Thread safety: thread-safe; Run is for one thread, once.
#ifndef CAPSTAN_COMMON_NET_FRAME_DATA_CONNECTION_H_
#define CAPSTAN_COMMON_NET_FRAME_DATA_CONNECTION_H_

#include <atomic>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "absl/time/time.h"
#include "common/net/frame/frame.h"
#include "common/net/frame/frame_reader.h"
#include "common/net/frame/frame_writer.h"
#include "common/net/socket/socket_stream.h"
#include "common/net/socket/wake_up.h"
#include "common/time/clock.h"
#include "common/time/instant.h"

namespace capstan {

class DataConnection {
 public:
  // Called by the thread in Run, under no lock.
  class Handler {
   public:
    virtual ~Handler() = default;
    // Errors end the connection.
    virtual absl::Status OnFrame(const FrameHead& head, absl::Cord payload) = 0;
    // Says where parts of the payload of a frame belong, once its head is there; null: anywhere.
    virtual std::shared_ptr<PayloadPlaces> PlacesOf(const FrameHead& /*head*/) { return nullptr; }
    // Called before the thread sleeps, and after Wake. `moved`: bytes that have come and gone so
    // far. *next: when it is to be called again at the latest. Errors end the connection.
    virtual absl::Status OnTick(Instant now, int64_t moved, Instant* next) = 0;
  };

  // `clock` outlives the connection. The peers have greeted each other before Run and Send.
  DataConnection(std::unique_ptr<SocketStream> stream, int64_t queued_bytes_max,
                 const Clock* clock);

  // Runs until the connection ends; returns why: kUnavailable, an error of the handler, or one of
  // FrameReader::Next.
  absl::Status Run(Handler* handler);

  // Frames are dropped once the connection has ended. `head.length` is set to the payload's.
  void Send(const FrameHead& head, absl::Cord payload,
            absl::Duration patience = absl::ZeroDuration());
  // Same as Send, but the thread in Run always writes the frame.
  void Leave(const FrameHead& head, absl::Cord payload);
  void DropPlaces(uint64_t call) { reader_.DropPlaces(call); }  // Only the thread in Run calls it.
  void Wake();                                                  // Makes Run call OnTick.
  void Close();  // Makes Run return, soon. May be called before Run.
  SocketStream& stream() { return *stream_; }
  // False: the process has no descriptor left by which other threads wake the one in Run.
  bool usable() const { return wake_up_.descriptor() >= 0; }

 private:
  absl::Status Loop(Handler* handler);
  absl::Status HandleFrames(Handler* handler);
  absl::Status WaitForMore(Handler* handler, bool wait);
  bool MayRead() const { return writer_.queued_bytes() <= queued_bytes_max_; }

  const std::unique_ptr<SocketStream> stream_;
  const int64_t queued_bytes_max_;
  const Clock* const clock_;
  std::atomic<bool> closed_ = false;
  WakeUp wake_up_;
  FrameWriter writer_;
  // Used by the thread in Run.
  FrameReader reader_;
  int64_t received_bytes_ = 0;
};

}  // namespace capstan

#endif  // CAPSTAN_COMMON_NET_FRAME_DATA_CONNECTION_H_
