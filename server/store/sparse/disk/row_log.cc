#include "server/store/sparse/disk/row_log.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "common/storage/crc32c.h"

namespace capstan::server {
namespace {

constexpr size_t kHeadBytes = 2 * sizeof(uint32_t);  // Row, checksum.
constexpr size_t kSegmentBytes = 128 << 10;          // If they hold kRowsMin to kRowsMax rows.
constexpr size_t kRowsMin = 8;
constexpr size_t kRowsMax = 4096;
constexpr size_t kGapBytesMax = 2048;     // Reading such a gap costs less than another call.
constexpr size_t kPieceBytes = 64 << 10;  // A piece ends with the record that reaches it.
// At least this share of the records in segments is live, two segments not counted. With 0.7 each
// row that is written causes some 0.4 rows to be copied.
constexpr double kLiveMin = 0.7;

size_t SegmentRows(size_t payload_bytes) {
  return std::clamp(kSegmentBytes / (kHeadBytes + payload_bytes), kRowsMin, kRowsMax);
}

uint32_t WordAt(const char* bytes) {
  uint32_t word;
  std::memcpy(&word, bytes, sizeof(word));
  return word;
}

uint32_t ChecksumOf(uint32_t use, RowNumber row, absl::string_view payload) {
  const uint32_t whose[] = {use, row};
  Crc32c crc;
  crc.Add({reinterpret_cast<const char*>(whose), sizeof(whose)});
  crc.Add(payload);
  return crc.value();
}

// Whether `record` is what was written for the row in this use of the segment.
bool IsWhole(absl::string_view record, uint32_t use, RowNumber row) {
  return WordAt(record.data()) == row && WordAt(record.data() + sizeof(uint32_t)) ==
                                             ChecksumOf(use, row, record.substr(kHeadBytes));
}

// Calls take(index of a record, its bytes) for each record of a piece that has been read.
template <typename Plan, typename Take>
absl::Status TakeRecords(const Plan& plan, size_t piece, absl::string_view bytes,
                         size_t record_bytes, Take take) {
  const auto first = plan.records[plan.begins[piece]].place;
  for (size_t i = plan.begins[piece]; i < plan.begins[piece + 1]; ++i) {
    const auto& it = plan.records[i];
    CAPSTAN_RETURN_IF_ERROR(take(i, bytes.substr((it.place - first) * record_bytes, record_bytes)));
  }
  return absl::OkStatus();
}

absl::Status Damaged(RowNumber row, const SpillFile& file) {
  return absl::DataLossError(
      absl::StrCat("row ", row, " on disk is not what was written: rows in ", file.folder()));
}

}  // namespace

size_t RowLog::SegmentBytes(size_t payload_bytes) {
  return SegmentRows(payload_bytes) * (kHeadBytes + payload_bytes);
}

RowLog::RowLog(std::shared_ptr<SpillFile> file, size_t payload_bytes)
    : file_(std::move(file)),
      payload_bytes_(payload_bytes),
      record_bytes_(kHeadBytes + payload_bytes),
      segment_rows_(static_cast<uint32_t>(SegmentRows(payload_bytes))) {}

RowLog::~RowLog() {
  std::vector<uint32_t> mine;
  for (const Segment& segment : segments_) {
    if (segment.taken) mine.push_back(segment.in_file.number);
  }
  file_->Discard(mine);
}

int64_t RowLog::bytes() const {
  return static_cast<int64_t>(places_.capacity() * sizeof(Place) +
                              segments_.capacity() * sizeof(Segment));
}

absl::Status RowLog::Write(absl::Span<const RowNumber> rows,
                           absl::Span<const char* const> payloads) {
  CAPSTAN_RETURN_IF_ERROR(Append(rows, payloads));
  return Clean();
}

absl::Status RowLog::Append(absl::Span<const RowNumber> rows,
                            absl::Span<const char* const> payloads) {
  while (!rows.empty()) {
    if (open_ == kNone || segments_[open_].used == segment_rows_) {
      CAPSTAN_RETURN_IF_ERROR(OpenSegment());
    }
    const size_t count = std::min<size_t>(rows.size(), segment_rows_ - segments_[open_].used);
    CAPSTAN_RETURN_IF_ERROR(AppendHere(rows.subspan(0, count), payloads));
    rows.remove_prefix(count);
    payloads.remove_prefix(count);
  }
  return absl::OkStatus();
}

absl::Status RowLog::AppendHere(absl::Span<const RowNumber> rows,
                                absl::Span<const char* const> payloads) {
  Segment& segment = segments_[open_];
  const size_t bytes = rows.size() * record_bytes_;
  const auto records = std::make_unique_for_overwrite<char[]>(bytes);
  char* to = records.get();
  for (size_t i = 0; i < rows.size(); ++i, to += record_bytes_) {
    const uint32_t head[] = {
        rows[i], ChecksumOf(segment.in_file.use, rows[i], {payloads[i], payload_bytes_})};
    static_assert(sizeof(head) == kHeadBytes);
    std::memcpy(to, head, kHeadBytes);
    std::memcpy(to + kHeadBytes, payloads[i], payload_bytes_);
  }
  CAPSTAN_RETURN_IF_ERROR(
      file_->Write(segment.in_file.number, segment.used * record_bytes_, {records.get(), bytes}));
  for (const RowNumber row : rows) {
    SetPlace(row, open_ * segment_rows_ + segment.used);
    ++segment.used;
  }
  return absl::OkStatus();
}

absl::Status RowLog::OpenSegment() {
  if (unused_.empty() && (segments_.size() + 1) * segment_rows_ >= kNowhere) {
    return absl::ResourceExhaustedError(
        absl::StrCat(live_, " rows of a bucket on disk: expected fewer"));
  }
  if (unused_.empty()) {
    unused_.push_back(static_cast<uint32_t>(segments_.size()));
    segments_.emplace_back();
  }
  const uint32_t full = std::exchange(open_, unused_.back());
  unused_.pop_back();
  segments_[open_] = {.in_file = file_->TakeSegment(), .taken = true};
  if (full != kNone && segments_[full].live == 0) Release(full);
  return absl::OkStatus();
}

void RowLog::SetPlace(RowNumber row, Place place) {
  Forget(row);
  if (row >= places_.size()) places_.resize(size_t{row} + 1, kNowhere);
  places_[row] = place;
  ++segments_[place / segment_rows_].live;
  ++live_;
}

void RowLog::Forget(RowNumber row) {
  const Place place = PlaceOf(row);
  if (place == kNowhere) return;
  places_[row] = kNowhere;
  --live_;
  const uint32_t segment = place / segment_rows_;
  if (--segments_[segment].live == 0 && segment != open_) Release(segment);
}

void RowLog::Release(uint32_t segment) {
  file_->Return(segments_[segment].in_file.number);
  segments_[segment] = {};
  unused_.push_back(segment);
}

absl::StatusOr<RowLog::Plan> RowLog::PlanOf(absl::Span<const RowNumber> rows) const {
  Plan plan;
  plan.records.reserve(rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    const Place place = PlaceOf(rows[i]);
    if (place == kNowhere) {
      return absl::DataLossError(absl::StrCat("row ", rows[i], " is not on disk"));
    }
    plan.records.push_back({.place = place,
                            .index = static_cast<uint32_t>(i),
                            .row = rows[i],
                            .use = segments_[place / segment_rows_].in_file.use});
  }
  std::sort(plan.records.begin(), plan.records.end(),
            [](const Record& a, const Record& b) { return a.place < b.place; });
  CutPieces(&plan);
  return plan;
}

void RowLog::CutPieces(Plan* plan) const {
  for (size_t i = 0; i < plan->records.size(); ++i) {
    const Place place = plan->records[i].place;
    const uint32_t segment = segments_[place / segment_rows_].in_file.number;
    const size_t at = place % segment_rows_ * record_bytes_;
    SpillFile::Piece* const last = plan->pieces.empty() ? nullptr : &plan->pieces.back();
    if (last != nullptr && last->segment == segment && last->bytes < kPieceBytes &&
        at <= last->at + last->bytes + kGapBytesMax) {
      last->bytes = at + record_bytes_ - last->at;
      continue;
    }
    plan->begins.push_back(i);
    plan->pieces.push_back({.segment = segment, .at = at, .bytes = record_bytes_});
  }
  plan->begins.push_back(plan->records.size());
}

absl::Status RowLog::Read(absl::Span<const RowNumber> rows, absl::Span<char* const> payloads) {
  CAPSTAN_ASSIGN_OR_RETURN(const Plan plan, PlanOf(rows));
  return file_->Read(plan.pieces, [&](size_t piece, absl::string_view bytes) {
    return TakeRecords(plan, piece, bytes, record_bytes_, [&](size_t i, absl::string_view record) {
      const Record& it = plan.records[i];
      if (!IsWhole(record, it.use, it.row)) return Damaged(it.row, *file_);
      std::memcpy(payloads[it.index], record.data() + kHeadBytes, payload_bytes_);
      return absl::OkStatus();
    });
  });
}

// A segment may be filled anew while it is read: then its records are of another use.
class RowLog::Fetch final : public RowFetch {
 public:
  Fetch(const RowLog& log, Plan plan)
      : file_(log.file_),
        record_bytes_(log.record_bytes_),
        plan_(std::move(plan)),
        payloads_(plan_.records.size() * payload_bytes()),
        arrived_(plan_.records.size()) {}

  void Start() override {
    absl::StatusOr<std::vector<size_t>> missing = file_->ReadCached(plan_.pieces, Keep());
    if (missing.ok()) missing_ = *std::move(missing);
  }
  void Finish() override {
    // A reader that needs the rows will meet the error.
    file_->ReadMissing(plan_.pieces, missing_, Keep()).IgnoreError();
  }
  int64_t bytes() const override { return std::ssize(payloads_); }

 private:
  friend RowLog;

  size_t payload_bytes() const { return record_bytes_ - kHeadBytes; }
  SpillFile::Take Keep() {
    return [this](size_t piece, absl::string_view bytes) {
      const auto keep = [this](size_t i, absl::string_view record) {
        arrived_[i] = IsWhole(record, plan_.records[i].use, plan_.records[i].row);
        std::memcpy(payloads_.data() + i * payload_bytes(), record.data() + kHeadBytes,
                    payload_bytes());
        return absl::OkStatus();
      };
      return TakeRecords(plan_, piece, bytes, record_bytes_, keep);
    };
  }

  const std::shared_ptr<SpillFile> file_;
  const size_t record_bytes_;
  const Plan plan_;
  std::vector<char> payloads_;
  std::vector<bool> arrived_;
  std::vector<size_t> missing_;
};

std::unique_ptr<RowFetch> RowLog::BeginFetch(absl::Span<const RowNumber> rows) const {
  absl::StatusOr<Plan> plan = PlanOf(rows);
  return plan.ok() ? std::make_unique<Fetch>(*this, *std::move(plan)) : nullptr;
}

std::vector<FetchedPayload> RowLog::Arrived(const RowFetch& fetch) const {
  std::vector<FetchedPayload> arrived;
  const auto& of_log = static_cast<const Fetch&>(fetch);
  if (of_log.file_ != file_) return arrived;
  for (size_t i = 0; i < of_log.plan_.records.size(); ++i) {
    const Record& it = of_log.plan_.records[i];
    if (!of_log.arrived_[i] || PlaceOf(it.row) != it.place) continue;
    if (segments_[it.place / segment_rows_].in_file.use != it.use) continue;
    arrived.push_back({.row = it.row, .payload = of_log.payloads_.data() + i * payload_bytes_});
  }
  return arrived;
}

bool RowLog::HasTooMuchGarbage() const {
  const int64_t held = std::ssize(segments_) - std::ssize(unused_) - 2;
  return static_cast<double>(live_) < kLiveMin * static_cast<double>(held * segment_rows_);
}

absl::Status RowLog::Clean() {
  while (HasTooMuchGarbage()) {
    uint32_t emptiest = kNone;
    for (uint32_t i = 0; i < segments_.size(); ++i) {
      if (!segments_[i].taken || i == open_) continue;
      if (emptiest == kNone || segments_[i].live < segments_[emptiest].live) emptiest = i;
    }
    CAPSTAN_RETURN_IF_ERROR(CleanSegment(emptiest));
  }
  return absl::OkStatus();
}

absl::Status RowLog::CleanSegment(uint32_t index) {
  const Segment segment = segments_[index];
  std::vector<RowNumber> rows;
  std::vector<const char*> payloads;
  const size_t bytes = segment.used * record_bytes_;
  return file_->Read(
      {{.segment = segment.in_file.number, .at = 0, .bytes = bytes}},
      [&](size_t, absl::string_view records) {
        for (uint32_t i = 0; i < segment.used; ++i) {
          const absl::string_view record = records.substr(i * record_bytes_, record_bytes_);
          const RowNumber row = WordAt(record.data());
          if (PlaceOf(row) != index * segment_rows_ + i) continue;
          if (!IsWhole(record, segment.in_file.use, row)) return Damaged(row, *file_);
          rows.push_back(row);
          payloads.push_back(record.data() + kHeadBytes);
        }
        if (rows.size() != segment.live) {
          return absl::DataLossError(absl::StrCat(segment.live - rows.size(),
                                                  " rows on disk are not where they were written"));
        }
        return Append(rows, payloads);
      });
}

}  // namespace capstan::server
