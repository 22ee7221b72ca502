// SparseRows: reads all rows, as they are and as they were at a version.
#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/planted/planted_bug.h"
#include "common/status/status_macros.h"
#include "server/store/sparse/prefetch.h"
#include "server/store/sparse/sparse_rows.h"

namespace capstan::server {
namespace {

// A row of a bucket, as it is or as it was.
struct Found {
  uint64_t place = 0;
  RowNumber row = 0;
  const RowHistory::Image* image = nullptr;
};

}  // namespace

SparseRows::Row SparseRows::RowOf(RowNumber row, const float* weights) const {
  return {.key = slab_.KeyAt(row),
          .weights = weights,
          .count = counts_updates() && weights != nullptr ? CountOf(weights) : 0,
          .stamp = StampAt(slab_.At(row))};
}

int64_t SparseRows::CountChanged(int64_t since) const {
  std::vector<RowNumber> numbers;
  uint64_t place = 0;
  int64_t changed = 0;
  do {
    numbers.clear();
    place = index_.AppendRows(place, &numbers);
    for (const RowNumber row : numbers) {
      changed += ChangedSince(since, StampAt(slab_.At(row)), version_) ? 1 : 0;
    }
  } while (place != 0);
  return changed;
}

void SparseRows::Keep(absl::Span<const RowNumber> rows, int64_t until) {
  if (history_.empty()) return;
  std::vector<RowHistory::Image> images;
  RowBatch batch;
  std::vector<RowNumber> wanted;
  for (const RowNumber row : rows) {
    const uint64_t place = places_.Of(slab_.KeyAt(row));
    if (!history_.Wants(place, StampAt(slab_.At(row)), until)) continue;
    images.push_back({.place = place});
    wanted.push_back(row);
    batch.rows.push_back(RowOf(row, IsOnDisk(row) ? nullptr : WeightsAt(row)));
  }
  const absl::Status read = ReadFromDisk(wanted, &batch);
  if (!read.ok()) return history_.Lose(read);
  for (size_t i = 0; i < images.size(); ++i) {
    const Row& row = batch.rows[i];
    images[i].key = row.key;
    images[i].stamp = row.stamp;
    images[i].payload = reinterpret_cast<const char*>(row.weights);
  }
  history_.Keep(images, until);
}

SparseRows::Row SparseRows::RowOf(const RowHistory::Image& image) const {
  const auto* const weights = reinterpret_cast<const float*>(image.payload);
  return {.key = image.key,
          .weights = weights,
          .count = counts_updates() ? CountOf(weights) : 0,
          .stamp = image.stamp};
}

absl::StatusOr<uint64_t> SparseRows::AppendRows(uint64_t place, RowBatch* batch) const {
  return Append({}, place, batch);
}

absl::StatusOr<int64_t> SparseRows::VersionOf(PinId pin) const {
  CAPSTAN_ASSIGN_OR_RETURN(const int64_t version, history_.VersionOf(pin));
  if (version_ - version <= kAgeMax) return version;
  return absl::AbortedError(absl::StrCat("version ", version, " is ", version_ - version,
                                         " updates ago: expected at most ", kAgeMax));
}

absl::StatusOr<uint64_t> SparseRows::AppendPinned(PinId pin, std::optional<int64_t> since,
                                                  uint64_t place, RowBatch* batch) const {
  CAPSTAN_ASSIGN_OR_RETURN(const int64_t version, VersionOf(pin));
  return Append({.at = version, .since = since}, place, batch);
}

absl::StatusOr<uint64_t> SparseRows::Append(const Which& which, uint64_t place,
                                            RowBatch* batch) const {
  std::vector<RowNumber> numbers;
  const uint64_t next = index_.AppendRun(place, &numbers);
  const int64_t bytes = cache_ == nullptr ? kPayloadAt + payload_bytes_ : kPayloadAt;
  for (const RowNumber row : numbers) Prefetch(slab_.At(row), bytes);
  // The order is by place; at the same place the image of a row comes before the present row.
  std::vector<Found> order;
  order.reserve(numbers.size());
  std::vector<RowHistory::Image> images;
  if (which.at.has_value()) {
    CAPSTAN_ASSIGN_OR_RETURN(
        images, history_.ImagesAt(*which.at, place, next, version_, &batch->from_disk));
  }
  for (const RowHistory::Image& image : images) {
    order.push_back({.place = image.place, .row = KeyIndex::kNone, .image = &image});
  }
  for (const RowNumber row : numbers) {
    const uint64_t at = places_.Of(slab_.KeyAt(row));
    if (at < place || (next != 0 && at >= next)) continue;
    if (which.at && ChangedSince(*which.at, StampAt(slab_.At(row)), version_)) continue;
    order.push_back({.place = at, .row = row});
  }
  std::sort(order.begin(), order.end(), [](const Found& a, const Found& b) {
    return a.place != b.place ? a.place < b.place : a.image != nullptr && b.image == nullptr;
  });
  numbers.clear();
  for (size_t i = 0; i < order.size(); ++i) {
    if (i > 0 && order[i].place == order[i - 1].place) continue;
    const auto& [unused_place, row, image] = order[i];
    const uint32_t stamp = image != nullptr ? image->stamp : StampAt(slab_.At(row));
    if (which.since && !ChangedSince(*which.since, stamp, which.at.value_or(version_))) continue;
    numbers.push_back(row);
    batch->rows.push_back(image != nullptr ? RowOf(*image)
                                           : RowOf(row, IsOnDisk(row) ? nullptr : WeightsAt(row)));
  }
  CAPSTAN_RETURN_IF_ERROR(ReadFromDisk(numbers, batch));
  return next;
}

absl::Status SparseRows::ReadFromDisk(absl::Span<const RowNumber> numbers, RowBatch* batch) const {
  if (cache_ == nullptr) return absl::OkStatus();
  Row* const rows = batch->rows.data() + batch->rows.size() - numbers.size();
  std::vector<RowNumber> missing;
  std::vector<size_t> at;
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (rows[i].weights != nullptr) continue;
    missing.push_back(numbers[i]);
    at.push_back(i);
  }
  if (missing.empty()) return absl::OkStatus();
  const auto payload_bytes = static_cast<size_t>(payload_bytes_);
  std::string& bytes = batch->from_disk.emplace_back(missing.size() * payload_bytes, '\0');
  std::vector<char*> payloads;
  for (size_t i = 0; i < missing.size(); ++i) payloads.push_back(bytes.data() + i * payload_bytes);
  CAPSTAN_RETURN_IF_ERROR(cache_->ReadPast(missing, payloads));
  for (size_t i = 0; i < at.size(); ++i) {
    rows[at[i]] = RowOf(missing[i], reinterpret_cast<const float*>(payloads[i]));
  }
  return absl::OkStatus();
}

absl::Status SparseRows::ReadPinned(PinId pin, absl::Span<const uint64_t> keys,
                                    PinnedRows* out) const {
  CAPSTAN_ASSIGN_OR_RETURN(int64_t version, VersionOf(pin));
  if (Planted(PlantedBug::kReadPresentForPinned)) version = version_;
  Rows present;
  for (; !keys.empty(); keys.remove_prefix(std::min(kBatch, keys.size()))) {
    const absl::Span<const uint64_t> batch = keys.subspan(0, kBatch);
    Locate(batch, kPayloadAt + config_.dim * int64_t{sizeof(float)}, &present);
    std::vector<uint64_t> places;
    for (const uint64_t key : batch) places.push_back(places_.Of(key));
    RowBatch rows;
    CAPSTAN_ASSIGN_OR_RETURN(const std::vector<RowHistory::Image> images,
                             history_.ImagesOf(version, places, version_, &rows.from_disk));
    std::vector<RowNumber> numbers;
    for (size_t i = 0; i < batch.size(); ++i) {
      const RowNumber row = present[i];
      const bool kept = images[i].payload != nullptr;
      const bool stands = !kept && row != KeyIndex::kNone &&
                          !ChangedSince(version, StampAt(slab_.At(row)), version_);
      out->found.push_back(kept || stands);
      if (!kept && !stands) continue;
      numbers.push_back(kept ? KeyIndex::kNone : row);
      rows.rows.push_back(kept ? RowOf(images[i])
                               : RowOf(row, IsOnDisk(row) ? nullptr : WeightsAt(row)));
    }
    CAPSTAN_RETURN_IF_ERROR(ReadFromDisk(numbers, &rows));
    for (const Row& row : rows.rows) {
      out->weights.insert(out->weights.end(), row.weights, row.weights + config_.dim);
    }
  }
  return absl::OkStatus();
}

}  // namespace capstan::server
