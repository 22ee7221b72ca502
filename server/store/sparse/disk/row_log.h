// RowLog: the payloads of one bucket's rows on disk: a RowDisk that only ever appends.
//
//   segment = records, one after the other    record = row (4 bytes), checksum (4), payload
//
// A payload is written behind all others, so payloads that leave memory together take one write,
// whatever rows they belong to; the record that the row had before is garbage. The place of each
// row's record (4 bytes a row) and the count of live records in each segment are in memory. When
// there is too much garbage, the live records of the emptiest segment are appended once more, and
// the segment can be filled anew (as in the log-structured file system: Rosenblum and Ousterhout,
// "The design and implementation of a log-structured file system", TOCS 1992).
//
// The checksum covers the row and the use of the segment, so that an old record which a disk has
// failed to overwrite is detected, like a damaged one.
// Thread safety: thread-compatible. Invariants: (1) a segment's `live` is the number of rows whose
// place is in it. (2) Every taken segment but the open one has a live row.
#ifndef CAPSTAN_SERVER_STORE_SPARSE_DISK_ROW_LOG_H_
#define CAPSTAN_SERVER_STORE_SPARSE_DISK_ROW_LOG_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "server/store/row_disk.h"
#include "server/store/sparse/disk/spill_file.h"

namespace capstan::server {

class RowLog final : public RowDisk {
 public:
  // The segment size that its file must have.
  static size_t SegmentBytes(size_t payload_bytes);

  // `file`: with segments of SegmentBytes(payload_bytes); shared with other buckets.
  RowLog(std::shared_ptr<SpillFile> file, size_t payload_bytes);
  ~RowLog() override;

  absl::Status Write(absl::Span<const RowNumber> rows,
                     absl::Span<const char* const> payloads) override;
  absl::Status Read(absl::Span<const RowNumber> rows, absl::Span<char* const> payloads) override;
  std::unique_ptr<RowFetch> BeginFetch(absl::Span<const RowNumber> rows) const override;
  std::vector<FetchedPayload> Arrived(const RowFetch& fetch) const override;
  void Forget(RowNumber row) override;
  int64_t bytes() const override;

 private:
  using Place = uint32_t;  // Index of the segment * segment_rows_ + record.
  static constexpr Place kNowhere = ~Place{0};
  static constexpr uint32_t kNone = ~uint32_t{0};

  struct Segment {
    SpillFile::Segment in_file;
    uint32_t used = 0;
    uint32_t live = 0;
    bool taken = false;
  };
  // A record that is to be read, and the index of its row in the caller's list.
  struct Record {
    Place place = 0;
    uint32_t index = 0;
    RowNumber row = 0;
    uint32_t use = 0;  // Which use of its segment the record belongs to.
  };
  struct Plan {
    std::vector<Record> records;  // Ordered by place.
    std::vector<SpillFile::Piece> pieces;
    std::vector<size_t> begins;  // The first record of each piece; and the end of all.
  };
  class Fetch;

  Place PlaceOf(RowNumber row) const { return row < places_.size() ? places_[row] : kNowhere; }
  absl::Status Append(absl::Span<const RowNumber> rows, absl::Span<const char* const> payloads);
  // REQUIRES: there is room in the open segment.
  absl::Status AppendHere(absl::Span<const RowNumber> rows, absl::Span<const char* const> payloads);
  absl::Status OpenSegment();
  void SetPlace(RowNumber row, Place place);
  void Release(uint32_t segment);

  // Errors: kDataLoss  a row has no payload here; names it.
  absl::StatusOr<Plan> PlanOf(absl::Span<const RowNumber> rows) const;
  // Cuts the records into pieces where the gap between two of them is too large to be read as well.
  void CutPieces(Plan* plan) const;

  bool HasTooMuchGarbage() const;
  absl::Status Clean();
  absl::Status CleanSegment(uint32_t segment);

  const std::shared_ptr<SpillFile> file_;
  const size_t payload_bytes_;
  const size_t record_bytes_;
  const uint32_t segment_rows_;
  std::vector<Place> places_;      // Keyed by row.
  std::vector<Segment> segments_;  // All segments; those that are not taken are used again.
  std::vector<uint32_t> unused_;   // Indices in segments_.
  uint32_t open_ = kNone;          // The segment that is being filled.
  int64_t live_ = 0;
};

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_STORE_SPARSE_DISK_ROW_LOG_H_
