// JobLog: the write-ahead log of one job on one server: whole shards (bases) and the records that
// follow them, of many shards, in segment files of bounded number and size.
//
//   Begin, Append, Continue, Forget --> batch (memory) --Commit: write, sync--> durable
//                                                            '--any failure--> FAILED for good
//
// Behind each batch that was synced lies a frame that says so, itself not synced. It distinguishes
// damage to durable frames from the torn end that a power cut leaves (frames/record_file.h).
//
// A later Begin of a shard replaces all that there is of it, a Forget removes it. What was replaced
// or removed is garbage; when it outweighs what is live, Commit copies the live frames of the
// oldest segment to the end of the log and removes it. So the files hold at most twice what is live
// and two segments more.
//
// After a failed write or sync it is unknown what the disk holds, so nothing is reported as durable
// any more; a new JobLog, from Open, reads what is there.
// Thread safety: thread-compatible. Invariants:
//   (1) Each Begin or Forget has a number, higher than those before; only the frames of a shard's
//       highest number count. So copies may lie anywhere, in any order, and twice.
//   (2) A segment that is not the last is synced, and the head of each later one says its size,
//       unless it is in doubt: it was the last when a process died.
//   (3) A segment is removed after its live frames are durable elsewhere, and a frame that says so.
#ifndef CAPSTAN_SERVER_LOG_JOB_LOG_H_
#define CAPSTAN_SERVER_LOG_JOB_LOG_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/storage/disk.h"
#include "common/types/ids.h"
#include "common/types/store_revision.h"
#include "google/protobuf/message_lite.h"
#include "proto/parameter_server.pb.h"
#include "server/log/frames/frame_batch.h"
#include "server/log/frames/record_file.h"
#include "server/log/log_index.h"

namespace capstan::server {

// The content of a server's log for one shard.
struct StoredState {
  ShardKey shard;
  Term term;
  Position position;
  Incarnation incarnation = {};  // The last incarnation of the server that had all of the shard.
  StoreRevision seen = {};       // The newest one that the writer of the last record knew.
  friend bool operator==(const StoredState&, const StoredState&) = default;
};

class JobLog {
 public:
  struct Options {
    // A new segment is begun beyond it, and beyond 8 times the size of the head.
    int64_t segment_bytes_max = int64_t{64} << 20;
    int64_t lent_bytes_min = FrameBatch::kLentBytesMin;  // See FrameBatch.
  };

  // Reads what there is in `folder`, which is made if it is missing. Copies what a process that
  // died wrote and may not have synced, so that it is durable. `disk` outlives the log. `copied`,
  // unless null, gets the bytes of these copies, also if there is no room for them.
  // Errors: kDataLoss           a file is damaged or missing; names it and the offset.
  //         kResourceExhausted  the disk is full: nothing has changed. The disk's others.
  static absl::StatusOr<std::unique_ptr<JobLog>> Open(Disk* disk, const std::string& folder,
                                                      const Options& options,
                                                      int64_t* copied = nullptr);
  // Removes the whole log. OK if the folder is missing. Errors: the disk's.
  static absl::Status Remove(Disk& disk, const std::string& folder);

  // Names the incarnation that writes from now on, and the revision that it has heard of.
  void set_writer(Incarnation incarnation, const StoreRevision& seen) {
    incarnation_ = incarnation;
    seen_ = seen;
  }

  // Each adds to the batch, to which the message's large fields are lent: the message must live and
  // not change until the next Commit. Records follow a Begin of the same term without gaps in their
  // positions; else the log fails with kInternal.
  void Begin(const ShardKey& shard, Term term, const v1::ShardSnapshot& snapshot);
  void Append(const ShardKey& shard, Term term, const v1::ShardRecord& record);
  // The shard begins a later term, `term`, with what the log has of it up to `position`. Records
  // behind that, which were never reported as durable, are discarded. If the log cannot do that, it
  // fails with kInternal.
  void Continue(const ShardKey& shard, Term term, Position position);
  void Forget(const ShardKey& shard);
  int64_t batch_bytes() const { return batch_.bytes(); }

  // Makes the batch durable. Errors: the disk's; after one, every later call returns the same.
  absl::Status Commit();

  std::vector<StoredState> Stored() const;  // The durable content, ordered by shard.

  // Reads what is durable of a shard: `install` once, then `replay` for each record in order.
  // Errors: kNotFound  it holds nothing of the shard. kDataLoss  as Open. The disk's; those of the
  //         functions, with which reading ends.
  using Install = std::function<absl::Status(const v1::ShardSnapshot&)>;
  using Replay = std::function<absl::Status(const v1::ShardRecord&)>;
  absl::Status Read(const ShardKey& shard, const Install& install, const Replay& replay) const;

  int64_t bytes() const { return index_.bytes(); }  // Size of all segments.
  int64_t live_bytes() const { return index_.live_bytes(); }
  int segments() const { return static_cast<int>(index_.segments().size()); }

 private:
  struct Tail {  // State of a shard that is not forgotten, including the batch.
    uint64_t base = 0;
    Term term;
    Position position;
    Position base_position;
  };

  JobLog(Disk* disk, std::string folder, const Options& options);

  std::string PathOf(uint64_t segment) const;
  absl::Status Recover();
  absl::Status RecoverFrom(const std::vector<uint64_t>& numbers);
  // Moves the live frames of the in_doubt_ segments to a new one.
  absl::Status SettleDoubt(int64_t* copied);
  absl::Status RemoveUnlisted();
  // Begins a batch if none is: at the end of the last segment, or with the head of a new one.
  void StartBatch();
  FrameHead NextHead(LogFrameType type);
  void AddShardFrame(LogFrame frame, const google::protobuf::MessageLite* message);
  // Copies all live frames of the segment to the batch, and says that it is removed.
  absl::Status AddCopies(uint64_t segment);
  absl::Status WriteBatch();
  absl::Status WriteSynced();
  absl::Status CleanOldest();
  absl::Status RemoveSegment(uint64_t segment);
  absl::Status Fail(const absl::Status& status);
  // The payload of a frame, read again and checked.
  absl::StatusOr<std::string> ReadFrame(const LogFrame& frame) const;

  Disk* const disk_;
  const std::string folder_;
  const Options options_;
  LogIndex index_;
  std::map<ShardKey, Tail> tails_;
  uint64_t next_base_ = 1;
  Incarnation incarnation_;
  StoreRevision seen_;
  absl::Status failure_;

  std::unique_ptr<WritableFile> file_;  // The last segment. Null: a new one is to be begun.
  uint64_t segment_ = 0;                // Its number.
  uint64_t sequence_ = 0;               // Number of the next frame in the segment.
  std::vector<uint64_t> in_doubt_;      // Segments whose size no head vouches for.

  FrameBatch batch_;
  bool rotate_ = false;           // The batch begins a new segment.
  int64_t head_bytes_ = 0;        // Size of the segment's first frame, which lists those before it.
  int64_t synced_bytes_ = 0;      // Synced bytes of that segment, from its begin.
  int64_t batch_offset_ = 0;      // Offset of the batch in its segment.
  std::vector<LogFrame> frames_;  // Frames of the batch.
};

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_LOG_JOB_LOG_H_
