// RowStore: the functions that a bucket of a sparse table has beside those of ShardStore: for rows
// that come and go, that lie on disk, and that are kept for readers as they were. SparseStore
// (server/store/sparse) implements it.
//
// Thread safety: thread-compatible.
#ifndef CAPSTAN_SERVER_STORE_ROW_STORE_H_
#define CAPSTAN_SERVER_STORE_ROW_STORE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/parameter_server.pb.h"
#include "server/store/gradient.h"
#include "server/store/kept_rows.h"
#include "server/store/row_disk.h"

namespace capstan::server {

// Which rows of one bucket are asked for.
struct RowScan {
  uint64_t place = 0;            // The lowest place (common/sparse/key_hash.h).
  int64_t bytes_max = 0;         // Limit of keys and rows; one row may exceed it.
  std::optional<int64_t> since;  // Only rows that an update after this version has written.
  bool unchanged_keys = false;   // If `since` is set: also the keys of the other rows.
};

// Rows that were found, ordered by place.
struct ScannedRows {
  std::string rows;              // Keys (fixed64), then a row of fp32 for each.
  std::string unchanged;         // Keys (fixed64).
  std::optional<uint64_t> next;  // The place to continue from; none: there are no more.
};

// Which pinned rows are read next.
struct PinnedRead {
  PinId pin{};
  std::optional<int64_t> since;  // Only rows that an update after this version had written.
  uint64_t place = 0;            // The lowest place.
  int64_t bytes_max = 0;         // Target size of a piece; some hundred rows may exceed it.
  bool passes = false;           // Rows before the result's place are not read again.
};

// The rows of requested keys, as they were when they were pinned.
struct RowsThen {
  std::string found;  // Bit i % 8 of byte i / 8: key i had a row.
  std::string rows;   // A row of fp32 for each key that had one.
};

class RowStore {
 public:
  virtual ~RowStore() = default;

  // Checks that the rows that a push names, new ones included, have room in a snapshot of the
  // shard. Errors: kResourceExhausted  they have not.
  virtual absl::Status CheckRoom(const Gradient& gradient) const = 0;

  // A fetch of the rows that ShardStore::Lend would have to read from disk for `keys`. It runs
  // before Lend and does not hold up the shard. Null: there are none.
  virtual std::unique_ptr<RowFetch> BeginFetch(const RowKeys& keys) const = 0;
  // Accepts the fetched rows that have arrived and have not changed since. Errors: as
  // ShardStore::Apply; then Lend fails, too.
  virtual absl::Status TakeIn(const RowFetch& fetch) const = 0;

  // Reads the rows from a place on, as they are now: as many as there is room for, and not more
  // than some milliseconds allow, which may be none where rows are far apart. Errors: as
  // ShardStore::Lend.
  virtual absl::StatusOr<ScannedRows> Scan(const RowScan& scan) const = 0;

  // Captures the state for a checkpoint: all of it, as ShardStore::Save, or only what has changed
  // after version `since` (then snapshot->since is set, without a checkpoint's id). The latter
  // needs a KeepRemovedSince of `since` or earlier if rows may leave, and at most half of the rows
  // changed. The snapshot lacks the rows: they are pinned until Unpin, to be read in pieces while
  // the shard goes on. Errors: as ShardStore::Apply.
  virtual absl::Status Capture(PinId pin, std::optional<int64_t> since, bool previous,
                               v1::ShardSnapshot* snapshot) = 0;
  // Writes the next rows to `piece`: values, optimizer_state and stamps, as a snapshot has them.
  // The result is the place to continue from; none: there are no more.
  // Errors: kAborted  they are no longer pinned. Also those of the disk.
  virtual absl::StatusOr<std::optional<uint64_t>> ReadPinned(const PinnedRead& read,
                                                             v1::ShardSnapshot* piece) = 0;
  virtual void Unpin(PinId pin) = 0;  // An unknown pin is ignored.
  // Pins the rows of this moment for readers, until Unpin. The memory of rows that are kept for
  // them is charged to `account`, and the pin ends once that has no room.
  virtual void PinForReaders(PinId pin, std::shared_ptr<KeptRowsAccount> account) = 0;
  // Reads the pinned rows of `keys`.
  // Errors: as ReadPinned; kResourceExhausted  the account had no room.
  virtual absl::StatusOr<RowsThen> ReadRowsThen(PinId pin, const RowKeys& keys) const = 0;
  // Same as Scan, for the pinned rows; `since` and `passes` are ignored. Errors: as ReadRowsThen.
  virtual absl::StatusOr<ScannedRows> ScanThen(const PinnedRead& read) const = 0;
  // Remembers, within bounds, the keys whose rows leave after `version`, the present version or an
  // earlier one.
  virtual void KeepRemovedSince(int64_t version) = 0;
  // Upper bound of the memory that Restore takes for rows that the snapshot only announces. 0:
  // Restore will refuse the snapshot.
  virtual int64_t RoomBytesMax(const v1::ShardSnapshot& snapshot) const = 0;
  // Restores the next rows of a snapshot whose rows come later. Called before anything else.
  // Errors: as ShardStore::Restore.
  virtual absl::Status RestoreMore(const v1::ShardSnapshot& piece) = 0;

  virtual v1::RowCounts row_counts() const = 0;
  virtual int64_t rows_on_disk() const = 0;
};

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_STORE_ROW_STORE_H_
