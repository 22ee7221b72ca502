#include "common/net/frame/frame_writer.h"

#include <poll.h>
#include <sys/uio.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"

namespace capstan {
namespace {

// The most that one call to the kernel writes. The bytes are summed up before, and should still be
// in the cache.
constexpr size_t kPiecesMax = 64, kBytesMax = 256 << 10;

}  // namespace

struct FrameWriter::Pieces {
  void Add(const char* data, size_t size) {
    at[count++] = {.iov_base = const_cast<char*>(data), .iov_len = size};
    bytes += size;
  }
  bool full() const { return count == kPiecesMax || bytes >= kBytesMax; }

  std::array<iovec, kPiecesMax> at;
  size_t count = 0, bytes = 0;
};

bool FrameWriter::AddLocked(FrameHead head, absl::Cord payload) {
  if (closed_ || !error_.ok()) return false;
  head.length = static_cast<uint32_t>(payload.size());
  Frame frame{.head = EncodeFrameHead(head), .payload = std::move(payload)};
  frame.sum = FrameSum({frame.head.data(), frame.head.size()});
  if (sums_ && !frame.payload.empty()) frame.tail_left = kFrameSumBytes;
  queued_bytes_ += static_cast<int64_t>(kFrameHeadBytes + frame.payload.size() + frame.tail_left);
  queue_.push_back(std::move(frame));
  return !busy_ && !stalled_;  // Otherwise a thread writes it, or knows that it is stalled.
}

bool FrameWriter::Send(FrameHead head, absl::Cord payload, absl::Duration patience) {
  {
    absl::MutexLock lock(&mutex_);
    if (!AddLocked(head, std::move(payload))) return false;
    busy_ = true;
  }
  return Write(patience);
}

bool FrameWriter::Leave(FrameHead head, absl::Cord payload) {
  absl::MutexLock lock(&mutex_);
  if (!AddLocked(head, std::move(payload))) return false;
  stalled_ = true;
  return true;
}

bool FrameWriter::Flush() {
  {
    absl::MutexLock lock(&mutex_);
    if (!stalled_ || busy_) return false;
    stalled_ = false;
    busy_ = true;
  }
  return Write(absl::ZeroDuration());
}

void FrameWriter::Close() {
  std::deque<Frame> queued, begun;  // They are destroyed without the lock.
  absl::MutexLock lock(&mutex_);
  closed_ = true;
  stalled_ = false;  // Nothing is left to be written.
  queued.swap(queue_);
  if (!busy_) begun.swap(writing_);
}

absl::Status FrameWriter::error() const {
  absl::MutexLock lock(&mutex_);
  return error_;
}

bool FrameWriter::TakeQueued() {
  std::deque<Frame> queued, begun;
  absl::MutexLock lock(&mutex_);
  if (closed_ || !error_.ok()) {
    queued.swap(queue_);
    begun.swap(writing_);
  }
  if (writing_.empty() && queue_.empty()) {
    busy_ = false;
    return false;
  }
  for (Frame& frame : queue_) writing_.push_back(std::move(frame));
  queue_.clear();
  return true;
}

bool FrameWriter::Write(absl::Duration patience) {
  while (TakeQueued()) {
    const Step step = WriteSome();
    if (step != Step::kFull || WaitForRoom(&patience)) continue;
    absl::MutexLock lock(&mutex_);
    if (closed_) continue;  // TakeQueued drops what is left.
    busy_ = false;
    stalled_ = true;
    return true;
  }
  return false;
}

bool FrameWriter::AddPayload(Frame& frame, Pieces* pieces) const {
  size_t offset = 0;  // Offset of the chunk in the payload.
  for (const absl::string_view chunk : frame.payload.Chunks()) {
    if (pieces->full()) return false;
    const absl::string_view part = chunk.substr(0, kBytesMax - pieces->bytes);
    pieces->Add(part.data(), part.size());
    const size_t known = std::min(part.size(), frame.summed - std::min(frame.summed, offset));
    if (sums_) frame.sum.Add(part.substr(known));
    offset += part.size();
    frame.summed = std::max(frame.summed, offset);
    if (part.size() < chunk.size()) return false;
  }
  return true;
}

FrameWriter::Step FrameWriter::WriteSome() {
  Pieces pieces;
  for (auto frame = writing_.begin(); frame != writing_.end() && !pieces.full(); ++frame) {
    if (frame->head_sent < kFrameHeadBytes) {
      pieces.Add(frame->head.data() + frame->head_sent, kFrameHeadBytes - frame->head_sent);
    }
    if (!AddPayload(*frame, &pieces) || (frame->tail_left > 0 && pieces.count == kPiecesMax)) break;
    if (frame->tail_left == 0) continue;
    if (frame->tail_left == kFrameSumBytes) frame->tail = frame->sum.Encode();
    pieces.Add(frame->tail.data() + kFrameSumBytes - frame->tail_left, frame->tail_left);
  }
  const absl::StatusOr<size_t> sent = stream_->Send({pieces.at.data(), pieces.count});
  if (!sent.ok()) {
    Fail(sent.status());
    return Step::kBroken;
  }
  if (*sent == 0) return Step::kFull;
  Advance(*sent);
  return Step::kGoOn;
}

void FrameWriter::Advance(size_t bytes) {
  queued_bytes_ -= static_cast<int64_t>(bytes);
  sent_bytes_ += static_cast<int64_t>(bytes);
  while (!writing_.empty()) {
    Frame& frame = writing_.front();
    const size_t of_head = std::min(bytes, kFrameHeadBytes - frame.head_sent);
    frame.head_sent += of_head;
    bytes -= of_head;
    const size_t of_payload = std::min(bytes, frame.payload.size());
    frame.payload.RemovePrefix(of_payload);
    frame.summed -= of_payload;
    bytes -= of_payload;
    const size_t of_tail = frame.payload.empty() ? std::min(bytes, frame.tail_left) : 0;
    frame.tail_left -= of_tail;
    bytes -= of_tail;
    if (frame.head_sent < kFrameHeadBytes || !frame.payload.empty() || frame.tail_left > 0) return;
    writing_.pop_front();
  }
}

bool FrameWriter::WaitForRoom(absl::Duration* patience) const {
  if (*patience <= absl::ZeroDuration()) return false;
  pollfd ready{.fd = stream_->socket(), .events = POLLOUT, .revents = 0};
  const absl::Time begin = absl::Now();
  const int found = poll(&ready, 1, static_cast<int>(absl::ToInt64Milliseconds(*patience)) + 1);
  *patience -= absl::Now() - begin;
  return found > 0;
}

void FrameWriter::Fail(const absl::Status& status) {
  absl::MutexLock lock(&mutex_);
  error_ = status;
}

}  // namespace capstan
