// LogIndex: where the live frames of a job's log lie: each shard's base with the highest number and
// the records that follow it.
//
// Frames may be added in any order and twice; see JobLog's invariant (1).
// Thread safety: thread-compatible. Invariants: live_bytes() is the sum over all shards' frames.
#ifndef CAPSTAN_SERVER_LOG_LOG_INDEX_H_
#define CAPSTAN_SERVER_LOG_LOG_INDEX_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/types/ids.h"
#include "common/types/store_revision.h"

namespace capstan::server {

// Types of frames in a segment.
enum class LogFrameType : uint32_t {
  kSegment = 1,         // The first of each segment: its number and those before it.
  kBase = 2,            // LogFrame, ShardSnapshot.
  kRecord = 3,          // LogFrame, ShardRecord.
  kForget = 4,          // LogFrame.
  kSegmentRemoved = 5,  // The number of a segment that no longer counts.
  kTerm = 6,            // LogFrame: the shard continues in this term behind this position.
  kSynced = 7,          // Empty: FrameHead says that all frames before it have been synced.
};

// A frame that is of one shard, and where it lies.
struct LogFrame {
  LogFrameType type = LogFrameType::kBase;
  ShardKey shard;
  uint64_t base = 0;  // Number of the Begin or Forget that it is, or that it follows.
  Term term;
  Position position;
  Incarnation incarnation;  // The incarnation of the server that wrote the frame.
  StoreRevision seen;       // The newest one that this server had heard of.
  uint64_t segment = 0;
  uint64_t sequence = 0;  // Number of the frame in its segment.
  int64_t begin = 0;      // [begin, begin + bytes) of the segment.
  int64_t bytes = 0;
};

// The head of a frame's payload, before the message.
inline constexpr size_t kLogFrameHeadBytes = 56;
void EncodeLogFrame(const LogFrame& frame, std::string* payload);
// Type and place are left as they are. REQUIRES: at least kLogFrameHeadBytes.
void DecodeLogFrame(absl::string_view payload, LogFrame* frame);

// The payload of a segment's first frame.
struct SegmentHead {
  uint64_t number = 0;
  // Earlier segments that count, keyed by number, and the size of their whole frames; -1: in doubt.
  std::map<uint64_t, int64_t> before;
};
std::string EncodeSegmentHead(const SegmentHead& head);
// Errors: kDataLoss  it is not one.
absl::StatusOr<SegmentHead> DecodeSegmentHead(absl::string_view payload);

// Largest number of a segment, or of a base, that is accepted: those that follow do not overflow.
inline constexpr uint64_t kLogNumberMax = uint64_t{1} << 62;

class LogIndex {
 public:
  struct Segment {
    int64_t bytes = 0;
    int64_t live = 0;  // Bytes of its frames that count.
  };
  struct Shard {
    uint64_t base = 0;
    bool begun = false;  // The base itself (a kBase or kForget) has been added.
    LogFrame base_frame;
    std::map<Position, LogFrame> records;
    std::map<Position, LogFrame> terms;  // kTerm: where later terms begin.

    // The shard's term in the log. REQUIRES: begun.
    Term term() const { return terms.empty() ? base_frame.term : terms.rbegin()->second.term; }
    // The incarnation of the server that had all of it last.
    Incarnation incarnation() const {
      return terms.empty() ? base_frame.incarnation : terms.rbegin()->second.incarnation;
    }
    // The newest revision that the writer of the last record had heard of.
    StoreRevision seen() const {
      const LogFrame& start = terms.empty() ? base_frame : terms.rbegin()->second;
      if (records.empty() || records.rbegin()->first <= start.position) return start.seen;
      return records.rbegin()->second.seen;
    }
    Position position() const {
      return records.empty() ? base_frame.position : records.rbegin()->first;
    }
  };

  void AddSegment(uint64_t segment) { segments_[segment]; }
  void SetBytes(uint64_t segment, int64_t bytes);
  // Adds a frame, unless a later base is there, or a later term that begins before it. The later of
  // two copies counts.
  void Add(const LogFrame& frame);
  // REQUIRES: it has no live frames.
  void RemoveSegment(uint64_t segment);

  // Whether every shard is whole: a base, and records without gaps, each of the term that its place
  // is in; and whether the numbers that follow fit.
  // Errors: kDataLoss  names the shard and what is missing; a base's number above kLogNumberMax, or
  //                    a position outside [0, kPositionMax].
  absl::Status Check() const;

  const std::map<uint64_t, Segment>& segments() const { return segments_; }
  const std::map<ShardKey, Shard>& shards() const { return shards_; }
  std::vector<LogFrame> LiveIn(uint64_t segment) const;  // Ordered as they lie there.
  uint64_t base_max() const { return base_max_; }
  int64_t bytes() const { return bytes_; }
  int64_t live_bytes() const { return live_bytes_; }

 private:
  static absl::Status CheckShard(const Shard& shard);
  // Adds it if there is none of a later term at its position.
  void AddTo(std::map<Position, LogFrame>* frames, const LogFrame& frame);
  // Removes the frames of earlier terms that lie behind `frame`, which begins a term.
  void CutBehind(std::map<Position, LogFrame>* frames, const LogFrame& frame);
  void Count(const LogFrame& frame);
  void Discount(const LogFrame& frame);

  std::map<uint64_t, Segment> segments_;
  std::map<ShardKey, Shard> shards_;
  uint64_t base_max_ = 0;
  int64_t bytes_ = 0;
  int64_t live_bytes_ = 0;
};

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_LOG_LOG_INDEX_H_
