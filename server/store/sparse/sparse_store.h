// SparseStore: the numbers of one bucket of a sparse table: its rows, and gradients on their way
// into them.
//
//   a push or record   keys (fixed64, ascending by hash), then a row of values for each
//   a pull             keys in the same form; answered with a row of values for each
//   a snapshot         elements: 1, the bucket; values: keys, then weights;
//                      optimizer_state: one entry of all rows' state, then, for Adam, one of their
//                      counts (fixed32); previous: keys, then weights, of rows that the last update
//                      changed or evicted; bucket: stamps of the rows, and all else that decides
//                      which rows come and go
//
// The version before the last update (BSP) is kept as the rows that it changed or evicted. What is
// captured for a checkpoint, a replica or the log is read in pieces while updates go on
// (row_history.h).
//
// A log writes a snapshot as one message, so a bucket may have at most as many rows as fit in
// kSnapshotBytesMax.
// Thread safety: thread-compatible.
#ifndef CAPSTAN_SERVER_STORE_SPARSE_SPARSE_STORE_H_
#define CAPSTAN_SERVER_STORE_SPARSE_SPARSE_STORE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "absl/container/btree_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/cord.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/wire/number_format.h"
#include "proto/parameter_server.pb.h"
#include "server/core/messages/messages.h"
#include "server/store/gradient.h"
#include "server/store/row_store.h"
#include "server/store/shard_store.h"
#include "server/store/sparse/removed_keys.h"
#include "server/store/sparse/sparse_rows.h"
#include "server/store/sparse/sparse_sum.h"

namespace capstan::server {

class SparseStore final : public ShardStore, private RowStore {
 public:
  // Limit for the keys, weights, state and stamps of all rows, the counts of keys without one, and
  // once more the keys and weights of the version before (twice, where an update can make as many
  // rows as it evicts).
  static constexpr int64_t kSnapshotBytesMax = 1 << 30;

  // Limits of one scan: some milliseconds of work, however small or few the rows are.
  static constexpr size_t kScanRowsMax = 1 << 16;
  static constexpr int kScanRunsMax = 1 << 11;

  // `bucket`: in [0, config.buckets).
  // Errors: kResourceExhausted  no memory. kInvalidArgument  more rows are allowed than a snapshot
  //         may have; says how many.
  static absl::StatusOr<std::unique_ptr<SparseStore>> Make(
      const SparseRows::Config& config, int32_t bucket,
      int64_t snapshot_bytes_max = kSnapshotBytesMax);

  absl::StatusOr<Gradient> Parse(const absl::Cord& payload, NumberFormat format,
                                 const RowKeys& listed = nullptr) const override;
  absl::StatusOr<RowKeys> ParseKeys(absl::string_view bytes) const override;
  int64_t AnswerElements(const RowKeys& keys) const override;
  absl::Status Keep(const KeepGradient& action, const Gradient& payload) override;
  absl::Status Add(const AddGradient& action, const Gradient& payload) override;
  void Drop(const DropGradient& action) override;
  void Release(const ReleasePrevious& action) override;
  absl::Status Apply(const ApplyGradient& action, const Gradient& payload) override;
  Gradient ReadGradient(GradientId id, const Gradient& payload) const override;
  absl::StatusOr<absl::Cord> Lend(ReadFrom from, const RowKeys& keys,
                                  NumberFormat format) const override;
  absl::Status Save(bool previous, v1::ShardSnapshot* snapshot) const override;
  absl::Status Restore(const v1::ShardSnapshot& snapshot) override;
  int64_t elements() const override { return rows_.rows() * rows_.dim(); }
  int64_t lasting_bytes() const override { return rows_.bytes(); }
  int64_t bytes() const override;

  const SparseRows& rows() const { return rows_; }

 private:
  // ---- RowStore, by row_store()
  absl::Status CheckRoom(const Gradient& gradient) const override;
  std::unique_ptr<RowFetch> BeginFetch(const RowKeys& keys) const override {
    return rows_.BeginFetch(*keys);
  }
  absl::Status TakeIn(const RowFetch& fetch) const override { return rows_.TakeIn(fetch); }
  absl::StatusOr<ScannedRows> Scan(const RowScan& scan) const override;
  absl::Status Capture(PinId pin, std::optional<int64_t> since, bool previous,
                       v1::ShardSnapshot* snapshot) override;
  absl::StatusOr<std::optional<uint64_t>> ReadPinned(const PinnedRead& read,
                                                     v1::ShardSnapshot* piece) override;
  void Unpin(PinId pin) override { rows_.history().Unpin(pin); }
  void PinForReaders(PinId pin, std::shared_ptr<KeptRowsAccount> account) override {
    rows_.Pin(pin, std::move(account));
  }
  absl::StatusOr<RowsThen> ReadRowsThen(PinId pin, const RowKeys& keys) const override;
  absl::StatusOr<ScannedRows> ScanThen(const PinnedRead& read) const override;
  void KeepRemovedSince(int64_t version) override;
  int64_t RoomBytesMax(const v1::ShardSnapshot& snapshot) const override;
  absl::Status RestoreMore(const v1::ShardSnapshot& piece) override;
  v1::RowCounts row_counts() const override { return rows_.lifetime().counts; }
  int64_t rows_on_disk() const override { return rows_.rows_on_disk(); }

  SparseStore(const SparseRows::Config& config, int32_t bucket, int64_t snapshot_bytes_max,
              SparseRows rows)
      : ShardStore(this, nullptr),
        config_(config),
        bucket_(bucket),
        snapshot_bytes_max_(snapshot_bytes_max),
        rows_(std::move(rows)) {}

  int64_t RowsMax() const;
  bool Evicts() const { return config_.eviction.may_evict(); }
  // Returns whether the changes since then are known, and are at most half of the rows.
  bool TellsSince(int64_t since) const;
  absl::Status CheckRows(int64_t rows) const;  // Same as CheckRoom, for so many rows.
  // Keeps the values before an update of the rows that it changed or evicted. `before`: those of
  // all rows that it named, some of which it refused.
  void KeepPrevious(const Gradient& before, const SparseRows::Effects& effects);
  // Errors: kInvalidArgument  they do not ascend, or one is of another bucket.
  absl::Status CheckKeys(const std::vector<uint64_t>& keys) const;
  // Restores all rows that the snapshot has, in pieces or not, and makes room for those to come.
  absl::Status RestoreRows(const v1::ShardSnapshot& snapshot);
  void SaveRest(bool previous, v1::ShardSnapshot* snapshot) const;  // Saves all but rows.
  // Overwrites rows that were read from the present with what they were before the last update.
  void WritePrevious(const std::vector<uint64_t>& keys, float* rows) const;

  const SparseRows::Config config_;
  const int32_t bucket_;
  const int64_t snapshot_bytes_max_;
  SparseRows rows_;
  absl::btree_map<GradientId, SparseSum> gradients_;
  std::optional<SparseSum> previous_;    // Rows that the last update changed, as they were before.
  RemovedKeys removed_;                  // Since a capture, where they are known.
  std::optional<uint64_t> restored_to_;  // The hash of the last key that was restored.
};

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_STORE_SPARSE_SPARSE_STORE_H_
