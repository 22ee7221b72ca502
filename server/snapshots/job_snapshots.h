// JobSnapshots: keeps moments of a job's shards for readers while the job goes on.
//
//   Keep: values of dense shards are lent, rows of buckets pinned --> read --> nobody reads it
//         any more, a shard of it has left this server or was made anew, or what is kept for it
//         has no room: gone
//
// Nothing is copied when a moment is kept: an update writes lent values to another buffer, and
// keeps a pinned row as it was (server/store/sparse/row_history.h). Both are accounted for. A
// snapshot that has ended stays known, with the reason, for as long as it has readers.
// Thread safety: thread-compatible; the mutex of a JobState serializes all calls. IsFull:
// thread-safe.
#ifndef CAPSTAN_SERVER_SNAPSHOTS_JOB_SNAPSHOTS_H_
#define CAPSTAN_SERVER_SNAPSHOTS_JOB_SNAPSHOTS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "common/time/instant.h"
#include "common/types/ids.h"
#include "proto/checkpoint_part.pb.h"
#include "proto/parameter_server.pb.h"
#include "server/core/snapshot_leases.h"
#include "server/store/kept_rows.h"
#include "server/store/tables/job_tables.h"

namespace capstan::server {

class JobSnapshots {
 public:
  // Limit of the rows or values in one answer.
  static constexpr int64_t kAnswerBytesMax = 4 << 20;
  // Sets the charge to `bytes`. On an error nothing changes.
  using Account = std::function<absl::Status(int64_t bytes)>;

  JobSnapshots(const SnapshotLeases::Limits& limits, Account account);

  // Keeps `shards` as they are for order.readers, as snapshot order.checkpoint_id; each bucket is
  // pinned with a number above *pins, which counts on. REQUIRES: the shards are held.
  // Errors (nothing is kept): those of SnapshotLeases::Open; kResourceExhausted  no room for what
  // updates will have to keep of dense shards; those of ShardStore::Lend.
  absl::Status Keep(const v1::CheckpointOrder& order, const std::vector<ShardKey>& shards,
                    Instant now, uint64_t* pins, JobTables& tables);

  // Errors: as proto/parameter_server.proto says; kInvalidArgument  the request is invalid.
  absl::Status Read(const v1::ReadSnapshotRequest& request, Instant now, JobTables& tables,
                    v1::ReadSnapshotResponse* response);
  // The requested shard. Nothing: only the reader's lease is renewed.
  static std::optional<ShardKey> ShardOf(const v1::ReadSnapshotRequest& request);
  // REQUIRES: Read has just succeeded for that shard of the snapshot.
  Version VersionOf(CheckpointId id, const ShardKey& shard) const {
    return snapshots_.at(id).shards.at(shard).version;
  }
  void Close(const v1::CloseSnapshotRequest& request, Instant now, JobTables& tables);

  // The shard is about to leave, or to be replaced: snapshots that have it end.
  void ShardGone(const ShardKey& key, JobTables& tables);
  void Tick(Instant now, JobTables& tables);
  // True if rows that were kept since the last Settle had no room.
  bool IsFull() const;
  void Settle(JobTables& tables);  // Ends all if IsFull().
  Instant NextDeadline() const { return leases_.NextDeadline(); }

  std::vector<CheckpointId> open() const;  // Snapshots that can be read.
  int64_t bytes() const;                   // Charged to the account.

 private:
  class Memory;  // The account of all snapshots' memory.
  struct Kept {
    Version version;
    PinId pin{};        // The pin of a bucket.
    absl::Cord values;  // The values of a dense shard.
  };
  struct Snapshot {
    std::map<ShardKey, Kept> shards;
    int64_t lent_bytes = 0;
    absl::Status ended;
  };

  absl::Status KeepShards(const std::vector<ShardKey>& shards, uint64_t* pins, JobTables& tables,
                          Snapshot& snapshot);
  absl::Status ReadRows(const v1::SnapshotRows& asked, const Snapshot& snapshot,
                        const JobTables& tables, v1::ReadSnapshotResponse* response) const;
  absl::Status ReadBucket(const v1::SnapshotBucket& asked, const Snapshot& snapshot,
                          const JobTables& tables, v1::ReadSnapshotResponse* response) const;
  absl::Status ReadValues(const v1::SnapshotShard& asked, const Snapshot& snapshot,
                          const JobTables& tables, v1::ReadSnapshotResponse* response) const;
  void End(Snapshot& snapshot, const absl::Status& why, JobTables& tables);

  SnapshotLeases leases_;
  const std::shared_ptr<Memory> memory_;  // Shared with the buckets.
  std::map<CheckpointId, Snapshot> snapshots_;
};

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_SNAPSHOTS_JOB_SNAPSHOTS_H_
