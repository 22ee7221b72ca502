// SparseRows: the rows of one bucket of a sparse table: key -> weights and optimizer state.
//
// A key that has never been updated has its initial weights (common/model/initial_rows.h) and takes
// no memory; reading changes nothing. An update makes the rows that it names. Work is done for a
// few dozen keys at a time: what they need is brought into the cache while the keys before them are
// looked at. Keys in ascending order of their places are the fastest.
//
//   row = key (8 bytes), stamp (rows/row_stamp.h), payload; a multiple of 8 bytes
//   payload = weights [dim], state, count of updates (Adam)
//
// With a limit of memory, payloads beyond it lie on disk (payload_cache.h), which changes nothing
// but time. A failing disk ends the call; then the rows must not be used any more.
//
// An update may refuse a key a row (RowAdmission): then its gradient is dropped. Afterwards rows
// may leave (RowEviction): then their keys have their initial weights again. Both follow from
// the updates before, so that every copy of a bucket that has had the same updates has the same
// rows.
//
// A reader that pins a version reads its rows, piece by piece, while updates go on (row_history.h).
// Thread safety: thread-compatible.
#ifndef CAPSTAN_SERVER_STORE_SPARSE_SPARSE_ROWS_H_
#define CAPSTAN_SERVER_STORE_SPARSE_SPARSE_ROWS_H_

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/model/initial_rows.h"
#include "common/wire/wire_values.h"
#include "proto/parameter_server.pb.h"
#include "server/optimizer/row_loops.h"
#include "server/store/row_disk.h"
#include "server/store/sparse/payload_cache.h"
#include "server/store/sparse/row_history.h"
#include "server/store/sparse/rows/key_index.h"
#include "server/store/sparse/rows/row_admission.h"
#include "server/store/sparse/rows/row_eviction.h"
#include "server/store/sparse/rows/row_slab.h"
#include "server/store/sparse/rows/row_stamp.h"

namespace capstan::server {

class SparseRows {
 public:
  static constexpr int64_t kDimMax = WireValues::kBlockElements;

  struct Config {
    int64_t dim = 1;  // 1 to kDimMax.
    int32_t buckets = 1;
    OptimizerConfig rule;
    RowInitializer initializer;
    RowAdmission::Config admission;
    RowEviction::Config eviction;
    // Limit of the memory of rows and their tables, 0: none. The rest of the rows lies on `disks`,
    // which outlives this object. Heads and index (20 to 30 bytes a row) are always in memory.
    int64_t memory_bytes = 0;
    RowDisks* disks = nullptr;
  };

  // Errors: kResourceExhausted  no memory; or of the disk.
  static absl::StatusOr<SparseRows> Make(const Config& config);

  // Writes the weights of the rows of `keys` to out[keys.size(), dim]. Errors: of the disk.
  absl::Status Read(absl::Span<const uint64_t> keys, float* out) const;

  // A fetch of the rows of `keys` that Read would have to read from disk. Null: there are none.
  std::unique_ptr<RowFetch> BeginFetch(absl::Span<const uint64_t> keys) const;
  // Accepts the fetched rows that have arrived and have not changed since. Errors: of the disk.
  absl::Status TakeIn(const RowFetch& fetch) const;

  int64_t CountMissing(absl::Span<const uint64_t> keys) const;  // Keys that have no row.

  // Effects of an update beside updated rows.
  struct Effects {
    bool want_weights = true;       // False: evicted_weights stays empty: they may be on disk.
    std::vector<size_t> refused;    // Indices in its keys, ascending, of those that got no row.
    std::vector<uint64_t> evicted;  // Keys, in ascending order of their places, and
    std::vector<float> evicted_weights;  // [evicted, dim], as they were.
  };
  // Sets for the updates that follow: the factor of their learning rate
  // (OptimizerConfig::learning_rate_factor), and that rows leave whose last update made a version
  // below `evict_before`.
  void PrepareUpdates(double learning_rate_factor, int64_t evict_before) {
    config_.rule.learning_rate_factor = learning_rate_factor;
    eviction_.SetBefore(evict_before);
  }
  // Applies update `step` (from 0) of the schedule to the rows of `keys`, which differ;
  // `gradients` [keys.size(), dim]. Makes version `step` + 1.
  // Errors: kResourceExhausted  no memory for a row; or of the disk. Some rows are updated, some
  //         are not.
  absl::Status Update(int64_t step, absl::Span<const uint64_t> keys, const WireValues& gradients,
                      Effects* effects = nullptr);

  // A row as it is, to be saved. `count` is 0 where rows do not count their updates.
  struct Row {
    uint64_t key = 0;
    const float* weights = nullptr;  // [dim], then state_floats() of state.
    uint32_t count = 0;
    uint32_t stamp = 0;
  };
  struct RowBatch {
    std::vector<Row> rows;
    std::deque<std::string> from_disk;  // Payloads read from disk, to which rows point.
  };
  // Appends the rows with places from `place` on and below the result, in ascending order: some
  // hundreds, or none. The result is the place to continue from; 0 after the last row. A caller
  // visits all rows with it. The appended rows are valid until the next update or Read, places
  // forever: when rows are made or erased in between, every other row is still visited exactly
  // once. Errors: those of the disk.
  absl::StatusOr<uint64_t> AppendRows(uint64_t place, RowBatch* batch) const;
  // How many rows an update after version `since` has written; all if that is more than kAgeMax
  // versions ago. Rows that have left are not counted.
  int64_t CountChanged(int64_t since) const;

  // Keeps the rows of this moment readable by `pin` while updates go on.
  void Pin(PinId pin, std::shared_ptr<KeptRowsAccount> account = nullptr) {
    history_.Pin(pin, version_, std::move(account));
  }
  // Same as AppendRows, for the rows as they were when they were pinned; with `since` only those
  // that an update after that version had written. Errors: of the disk; kAborted  they are not
  // pinned, or more than kAgeMax versions ago; kResourceExhausted  the pin's account had no room.
  absl::StatusOr<uint64_t> AppendPinned(PinId pin, std::optional<int64_t> since, uint64_t place,
                                        RowBatch* batch) const;
  // Rows of a few keys, as they were when they were pinned.
  struct PinnedRows {
    std::vector<bool> found;     // Whether each key had a row then.
    std::vector<float> weights;  // [found, dim], of those that had.
  };
  // Appends to `out` those of `keys`. Errors: as AppendPinned.
  absl::Status ReadPinned(PinId pin, absl::Span<const uint64_t> keys, PinnedRows* out) const;
  // Prepares for `more` rows that are about to be made in the order of their places: if they will
  // be most of all rows, the index grows at once, because that order would fill it from one end.
  // Errors: kResourceExhausted  no memory.
  absl::Status MakeRoom(int64_t more);
  // Makes a row with these numbers. REQUIRES: there is none of its key.
  // Errors: kResourceExhausted  no memory; or of the disk.
  absl::Status Put(const Row& row);

  // The state that the next update depends on beside the rows.
  struct Lifetime {
    int64_t version = 0;  // The version that the last update made.
    v1::RowCounts counts;
    uint64_t hand = 0;           // RowEviction's.
    absl::string_view counters;  // RowAdmission's; valid until the next update.
  };
  Lifetime lifetime() const;
  // Errors: kDataLoss  counters of another size.
  absl::Status SetLifetime(const Lifetime& lifetime);

  int64_t dim() const { return config_.dim; }
  int64_t state_floats() const { return state_floats_; }
  bool counts_updates() const { return CountsUpdates(config_.rule); }
  int64_t rows() const { return slab_.rows(); }
  int64_t rows_on_disk() const { return cache_ == nullptr ? 0 : rows() - cache_->payloads(); }
  // Bytes in memory.
  int64_t bytes() const { return fixed_bytes() + (cache_ == nullptr ? 0 : cache_->bytes()); }
  // Rows that pins keep. Their memory is not in bytes().
  RowHistory& history() { return history_; }
  const RowHistory& history() const { return history_; }
  const RowAdmission& admission() const { return admission_; }

 private:
  static constexpr size_t kBatch = 64;
  // The payload's place in a row.
  static constexpr int64_t kPayloadAt = kStampAt + int64_t{sizeof(uint32_t)};
  using Rows = std::array<RowNumber, kBatch>;
  size_t BatchMax() const;  // Keys that are worked on at a time.
  // At most kBatch rows that are to have initial values, and where.
  class NewRows {
   public:
    void Add(uint64_t key, float* row) {
      keys_[count_] = key;
      rows_[count_++] = row;
    }
    absl::Span<const uint64_t> keys() const { return {keys_.data(), count_}; }
    absl::Span<float* const> rows() const { return {rows_.data(), count_}; }

   private:
    size_t count_ = 0;
    std::array<uint64_t, kBatch> keys_;
    std::array<float*, kBatch> rows_;
  };

  SparseRows(const Config& config, std::unique_ptr<PayloadCache> cache, KeyIndex index,
             RowAdmission admission);

  // The rows of at most kBatch keys; KeyIndex::kNone where there is none. Their first `bytes` are
  // on their way into the cache.
  void Locate(absl::Span<const uint64_t> keys, int64_t bytes, Rows* rows) const;
  // Makes rows for keys that have none and are admitted, in the update that makes `version`.
  absl::Status MakeMissing(absl::Span<const uint64_t> keys, int64_t version, Rows* rows);
  // Counts an update of each of these rows and stamps them.
  void Touch(absl::Span<const RowNumber> rows, int64_t version, float** weights, uint32_t* counts);
  // Erases the rows that leave after an update that made `made` rows.
  absl::Status Evict(int64_t made, Effects* effects);
  void RenewStamps();
  absl::StatusOr<RowNumber> AddRow(uint64_t key);  // Its numbers are unspecified.
  void Initialize(const NewRows& made);            // Sets weights and state.
  // REQUIRES: it is in memory.
  float* WeightsAt(RowNumber row) const {
    char* const head = slab_.At(row);
    return reinterpret_cast<float*>(cache_ == nullptr ? head + kPayloadAt : cache_->Of(head));
  }
  bool IsOnDisk(RowNumber row) const {
    return cache_ != nullptr && PayloadCache::IsOnDisk(slab_.At(row));
  }
  Row RowOf(RowNumber row, const float* weights) const;
  Row RowOf(const RowHistory::Image& image) const;
  // Selects rows: as they are, or as they were at a pinned version; all, or those changed `since`.
  struct Which {
    std::optional<int64_t> at;
    std::optional<int64_t> since;
  };
  // Does the work of AppendRows and AppendPinned.
  absl::StatusOr<uint64_t> Append(const Which& which, uint64_t place, RowBatch* batch) const;
  absl::StatusOr<int64_t> VersionOf(PinId pin) const;  // Errors: as AppendPinned.
  // Keeps those of the rows that are pinned, before the update that makes `until` changes them.
  void Keep(absl::Span<const RowNumber> rows, int64_t until);

  // ---- With a limit of memory; FitMemory and ReadFromDisk do nothing without one.
  int64_t fixed_bytes() const { return slab_.bytes() + index_.bytes() + admission_.bytes(); }
  // Gives the payloads what heads, index and history leave of the limit.
  absl::Status FitMemory() const;
  std::vector<RowNumber> RowsOf(absl::Span<const uint64_t> keys) const;  // Or KeyIndex::kNone.
  // Same as Locate, for the batch at `begin`. The caller goes through all keys in steps of
  // BatchMax. The payloads of the batch's rows are in memory until the next call. `held` keeps the
  // rows of a few thousand keys, which are read together.
  absl::Status LocateHeld(absl::Span<const uint64_t> keys, size_t begin, int64_t bytes,
                          std::vector<RowNumber>* held, Rows* rows) const;
  // Reads the payloads of those of the batch's last rows whose weights are null; `numbers` are the
  // numbers of these last rows.
  absl::Status ReadFromDisk(absl::Span<const RowNumber> numbers, RowBatch* batch) const;
  uint32_t CountOf(const float* weights) const;
  void SetCount(uint32_t count, float* weights) const;

  Config config_;
  KeyIndex::Places places_;
  int64_t state_floats_;
  int64_t payload_bytes_;
  std::unique_ptr<PayloadCache> cache_;  // Null: the payloads are in the slab.
  mutable RowSlab slab_;                 // Reading moves payloads, so it changes heads.
  KeyIndex index_;
  RowAdmission admission_;
  RowEviction eviction_;
  RowHistory history_;
  v1::RowCounts counts_;  // Without `held`.
  int64_t version_ = 0;
};

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_STORE_SPARSE_SPARSE_ROWS_H_
