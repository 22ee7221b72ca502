// FrameWriter: puts frames on a stream, from any thread, without waiting for a slow reader.
//
//            Send                            socket takes no more
//   IDLE ----------> a thread of Send or Flush writes ----------> STALLED
//    ^                  |           ^                                |
//    '----all written---'           '-------------Flush--------------'
//
// One thread writes at a time, also the frames that others send meanwhile. Nobody writes while the
// writer is stalled; whoever polls the socket then calls Flush. Payloads are sent from where they
// lie. Each part is summed up just before it is sent, so that the kernel's copy finds it in the
// cache; on a stream that detects damage by itself there are no sums.
// Thread safety: thread-safe.
#ifndef CAPSTAN_COMMON_NET_FRAME_FRAME_WRITER_H_
#define CAPSTAN_COMMON_NET_FRAME_FRAME_WRITER_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/net/frame/frame.h"
#include "common/net/socket/socket_stream.h"

namespace capstan {

class FrameWriter {
 public:
  // The stream outlives the writer.
  explicit FrameWriter(SocketStream* stream) : stream_(stream), sums_(!stream->detects_damage()) {}

  // Adds a frame; `head.length` is set to the payload's, which FrameHead bounds. Writes if nobody
  // does, and waits, `patience` in all, for a socket that takes no more. True: the writer has
  // become stalled.
  bool Send(FrameHead head, absl::Cord payload, absl::Duration patience);
  // Adds a frame and leaves it to whoever writes, or to Flush. True: the writer has become stalled.
  bool Leave(FrameHead head, absl::Cord payload);
  // Continues if the writer is stalled, without waiting. True: it is stalled again.
  bool Flush();

  bool stalled() const { return stalled_.load(std::memory_order_acquire); }
  int64_t queued_bytes() const { return queued_bytes_.load(std::memory_order_relaxed); }
  int64_t sent_bytes() const { return sent_bytes_.load(std::memory_order_relaxed); }
  // Drops what is queued, and later frames. The memory of payloads is released, at the latest as
  // the thread that writes notices.
  void Close();
  absl::Status error() const;  // Why the stream is broken; OK: it is not.

 private:
  struct Frame {
    std::array<char, kFrameHeadBytes> head;
    size_t head_sent = 0;
    absl::Cord payload;  // The part of it that is still to be sent.
    size_t summed = 0;   // Bytes at its front that are in the sum already, if there is one.
    FrameSum sum;
    std::array<char, kFrameSumBytes> tail = {};  // The sum, once all of the payload is in it.
    size_t tail_left = 0;                        // 0 from the start: the payload has no sum.
  };
  struct Pieces;  // The pieces that one call hands to the kernel.
  enum class Step { kGoOn, kFull, kBroken };

  // True: the caller is to write. False: nobody is, or another thread does, or Flush will.
  bool AddLocked(FrameHead head, absl::Cord payload) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Write(absl::Duration patience);
  bool TakeQueued();
  Step WriteSome();
  bool AddPayload(Frame& frame, Pieces* pieces) const;  // False: not all of it.
  void Advance(size_t bytes);
  bool WaitForRoom(absl::Duration* patience) const;
  void Fail(const absl::Status& status);

  SocketStream* const stream_;
  const bool sums_;            // Payloads have sums.
  std::deque<Frame> writing_;  // Used by the thread that writes.
  std::atomic<bool> stalled_ = false;
  std::atomic<int64_t> queued_bytes_ = 0, sent_bytes_ = 0;

  mutable absl::Mutex mutex_;
  bool busy_ ABSL_GUARDED_BY(mutex_) = false;  // A thread writes.
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status error_ ABSL_GUARDED_BY(mutex_);
  std::deque<Frame> queue_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace capstan

#endif  // CAPSTAN_COMMON_NET_FRAME_FRAME_WRITER_H_
