// RowStore: what a bucket of a sparse table has beside ShardStore: rows that come and go, that lie
// on disk, and that are kept for readers as they were. SparseStore's (server/store/sparse).
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
  uint64_t place = 0;            // The lowest (common/sparse/key_hash.h).
  int64_t bytes_max = 0;         // Limit of keys and rows; one row comes all the same.
  std::optional<int64_t> since;  // Only those that an update after this version has written.
  bool unchanged_keys = false;   // If `since` is set: also the keys of the other rows.
};

// Rows that were found, ordered by place.
struct ScannedRows {
  std::string rows;              // Keys (fixed64), then a row of fp32 for each.
  std::string unchanged;         // Keys (fixed64).
  std::optional<uint64_t> next;  // The place to go on from; none: there are no more.
};

// Which pinned rows are read next.
struct PinnedRead {
  PinId pin{};
  std::optional<int64_t> since;  // Only those that an update after this version had written.
  uint64_t place = 0;            // The lowest.
  int64_t bytes_max = 0;  // Approximate size of a piece: some hundred rows come all the same.
  bool passes = false;    // Rows before the result's place are not read again.
};

// Rows by key, as they were when they were pinned.
struct RowsThen {
  std::string found;  // Bit i % 8 of byte i / 8: key i had a row.
  std::string rows;   // A row of fp32 for each of those.
};

class RowStore {
 public:
  virtual ~RowStore() = default;

  // OK: the rows that a push names, new ones included, have room in a snapshot of the shard.
  // Errors: kResourceExhausted  they have not.
  virtual absl::Status CheckRoom(const Gradient& gradient) const = 0;

  // What ShardStore::Lend would have to read from disk for `keys`, to be read ahead of it without
  // holding up the shard; TakeIn takes in what has arrived, as far as nothing has changed it since.
  // Null: nothing. Errors: as ShardStore::Apply; then Lend will say so as well.
  virtual std::unique_ptr<RowFetch> BeginFetch(const RowKeys& keys) const = 0;
  virtual absl::Status TakeIn(const RowFetch& fetch) const = 0;

  // The rows that exist from a place on, as they are now: as many as there is room for, and not
  // more than can be had in some milliseconds; where they are far apart that may be none.
  virtual absl::StatusOr<ScannedRows> Scan(const RowScan& scan) const = 0;

  // Captures the state for a checkpoint: all as ShardStore::Save, or, where it can tell and most of
  // it is the same, what has changed after version `since` (snapshot->since, without a checkpoint's
  // id). What left is known since KeepRemovedSince(`since` or earlier). The snapshot is without its
  // rows: they are pinned, to be read in pieces while the shard goes on, until Unpin. Errors: as
  // ShardStore::Apply.
  virtual absl::Status Capture(PinId pin, std::optional<int64_t> since, bool previous,
                               v1::ShardSnapshot* snapshot) = 0;
  // Writes the next rows to `piece`: values, optimizer_state and stamps, as a snapshot has them.
  // The result is the place to go on from; none: there are no more.
  // Errors: kAborted  they are pinned no more. Also those of the disk.
  virtual absl::StatusOr<std::optional<uint64_t>> ReadPinned(const PinnedRead& read,
                                                             v1::ShardSnapshot* piece) = 0;
  virtual void Unpin(PinId pin) = 0;  // One that is unknown is ignored.
  // Pins the rows of this moment for readers, until Unpin. Rows that are kept for them stand on the
  // account, and the pin ends where that has no room.
  virtual void PinForReaders(PinId pin, std::shared_ptr<KeptRowsAccount> account) = 0;
  // Errors: as ReadPinned; kResourceExhausted  the account had no room.
  virtual absl::StatusOr<RowsThen> ReadRowsThen(PinId pin, const RowKeys& keys) const = 0;
  // Same as Scan, for the pinned rows; `since` and `passes` are ignored. Errors: as ReadRowsThen.
  virtual absl::StatusOr<ScannedRows> ScanThen(const PinnedRead& read) const = 0;
  // Whoever leaves after `version` of now or before is to be remembered, within bounds.
  virtual void KeepRemovedSince(int64_t version) = 0;
  // Upper bound of the memory that Restore takes for rows that the snapshot only announces. 0: it
  // will be refused.
  virtual int64_t RoomBytesMax(const v1::ShardSnapshot& snapshot) const = 0;
  // The next rows of a snapshot whose rows come later; before anything else.
  // Errors: as ShardStore::Restore.
  virtual absl::Status RestoreMore(const v1::ShardSnapshot& piece) = 0;

  virtual v1::RowCounts row_counts() const = 0;
  virtual int64_t rows_on_disk() const = 0;
};

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_STORE_ROW_STORE_H_
