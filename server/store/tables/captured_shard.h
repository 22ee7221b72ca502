// CapturedShard: a shard's state at one moment, whose rows may be read later, while the job goes
// on: for a checkpoint, a replica or the log.
//
//   captured --Next()... --> piece after piece --> all read, or dropped: they are kept no longer
//
// Thread safety: values; CapturedRows: thread-compatible, from any thread. The CapturedRows of
// shards that were captured together are one sequence: one thread reads them, best in their order.
#ifndef CAPSTAN_SERVER_STORE_TABLES_CAPTURED_SHARD_H_
#define CAPSTAN_SERVER_STORE_TABLES_CAPTURED_SHARD_H_

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "proto/parameter_server.pb.h"
#include "server/store/tables/shard_factory.h"

namespace capstan::server {

// The rows of a captured bucket. May be dropped under any lock.
class CapturedRows {
 public:
  // Target size of one piece. Some hundred rows come even if they are larger.
  static constexpr int64_t kPieceBytes = 256 << 10;

  // Returns the next rows, as one of ShardSnapshot.pieces; none: there are no more. Locks the job's
  // mutex.
  // Errors: kAborted  the shard is no longer held, or was made anew. Those of the disk on which
  // rows lie.
  virtual absl::StatusOr<std::optional<v1::ShardSnapshot>> Next() = 0;
  virtual ~CapturedRows() = default;  // The rows are no longer kept.
};

// A shard's state at one moment, or what of it has changed (`since`). Both parts are shared with
// the code that writes or sends them.
struct CapturedShard {
  HeldShard shard;
  std::shared_ptr<const v1::ShardSnapshot> snapshot;
  std::shared_ptr<CapturedRows> rows;  // A bucket's rows; `snapshot` lacks them. Else null.
  int64_t bytes = 0;                   // Memory of all of it, roughly.
};

// Returns the snapshot with all its rows, as pieces. Errors: as CapturedRows::Next.
absl::StatusOr<std::shared_ptr<const v1::ShardSnapshot>> ReadWhole(
    std::shared_ptr<const v1::ShardSnapshot> snapshot, CapturedRows* rows);

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_STORE_TABLES_CAPTURED_SHARD_H_
