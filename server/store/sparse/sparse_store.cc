#include "server/store/sparse/sparse_store.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/planted/planted_bug.h"
#include "common/sparse/key_hash.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "common/wire/wire_values.h"
#include "server/store/float_buffer.h"
#include "server/store/sparse/rows/key_index.h"
#include "server/store/sparse/rows/row_stamp.h"
#include "server/store/sparse/saved_rows.h"

namespace capstan::server {
namespace {

RowKeys KeysOf(absl::string_view bytes) {
  auto keys = std::make_shared<std::vector<uint64_t>>(bytes.size() / sizeof(uint64_t));
  if (!bytes.empty()) std::memcpy(keys->data(), bytes.data(), keys->size() * sizeof(uint64_t));
  return keys;
}

// Returns the keys in the first `bytes` of the payload.
RowKeys KeysOf(const absl::Cord& payload, size_t bytes) {
  auto keys = std::make_shared<std::vector<uint64_t>>(bytes / sizeof(uint64_t));
  auto* to = reinterpret_cast<char*>(keys->data());
  for (const absl::string_view chunk : payload.Chunks()) {
    const size_t copied = std::min(bytes, chunk.size());
    std::memcpy(to, chunk.data(), copied);
    to += copied;
    bytes -= copied;
    if (bytes == 0) break;
  }
  return keys;
}

void Append(const void* data, int64_t bytes, std::string* to) {
  to->append(static_cast<const char*>(data), static_cast<size_t>(bytes));
}

void AppendKeys(absl::Span<const uint64_t> keys, std::string* to) {
  Append(keys.data(), static_cast<int64_t>(keys.size()) * kKeyBytes, to);
}

// Limit of keys kept of rows that leave between two captures. At 16 bytes each they take less
// memory than the rows.
int64_t RemovedMax(int64_t rows) { return 1024 + rows / 4; }

// Counts the rows that the snapshot has, in pieces or not, with those that it only announces.
int64_t RowsOf(const v1::ShardSnapshot& snapshot) {
  int64_t rows = RowsIn(snapshot);
  for (const v1::ShardSnapshot& piece : snapshot.pieces()) rows += RowsIn(piece);
  return std::max(rows, snapshot.rows_to_come());  // Some of these may be here already.
}

}  // namespace

absl::StatusOr<std::unique_ptr<SparseStore>> SparseStore::Make(const SparseRows::Config& config,
                                                               int32_t bucket,
                                                               int64_t snapshot_bytes_max) {
  CAPSTAN_ASSIGN_OR_RETURN(SparseRows rows, SparseRows::Make(config));
  std::unique_ptr<SparseStore> store(
      new SparseStore(config, bucket, snapshot_bytes_max, std::move(rows)));
  if (config.eviction.rows_max <= store->RowsMax()) return store;
  return absl::InvalidArgumentError(absl::StrCat(
      "rows_max allows ", config.eviction.rows_max, " rows a bucket: expected at most ",
      store->RowsMax(), "; the table needs more buckets"));
}

absl::Status SparseStore::CheckKeys(const std::vector<uint64_t>& keys) const {
  for (size_t i = 0; i < keys.size(); ++i) {
    const uint64_t hash = KeyHash(keys[i]);
    const int32_t bucket = PlaceOf(hash, config_.buckets).bucket;
    if (bucket != bucket_) {
      return absl::InvalidArgumentError(absl::StrCat("key ", keys[i], " (the ", i,
                                                     "th) is of bucket ", bucket, " of ",
                                                     config_.buckets, ": expected ", bucket_));
    }
    if (i > 0 && hash <= KeyHash(keys[i - 1])) {
      return absl::InvalidArgumentError(
          absl::StrCat("key ", keys[i], " (the ", i, "th) comes after ", keys[i - 1],
                       ": expected each key once, in ascending order of their hashes"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Gradient> SparseStore::Parse(const absl::Cord& payload, NumberFormat format,
                                            const RowKeys& listed) const {
  const int64_t row_bytes = config_.dim * BytesOf(format);
  const auto bytes = static_cast<int64_t>(payload.size());
  if (listed != nullptr) {
    const int64_t expected = std::ssize(*listed) * row_bytes;
    if (bytes == expected) return Gradient(listed, WireValues(payload, format));
    return absl::InvalidArgumentError(absl::StrCat(bytes, " bytes of rows: expected ", expected,
                                                   " of the ", listed->size(),
                                                   " keys of the list"));
  }
  if (bytes % (kKeyBytes + row_bytes) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(bytes, " bytes of keys and rows: expected a multiple of ",
                     kKeyBytes + row_bytes, " = ", kKeyBytes, " of a key and ", row_bytes, " of ",
                     config_.dim, " elements of ", v1::ValueType_Name(TypeOf(format))));
  }
  const auto key_bytes = static_cast<size_t>(bytes / (kKeyBytes + row_bytes) * kKeyBytes);
  RowKeys keys = KeysOf(payload, key_bytes);
  CAPSTAN_RETURN_IF_ERROR(CheckKeys(*keys));
  return Gradient(std::move(keys), WireValues(payload, format, key_bytes));
}

absl::StatusOr<RowKeys> SparseStore::ParseKeys(absl::string_view bytes) const {
  if (bytes.size() % sizeof(uint64_t) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(bytes.size(), " bytes of keys: expected a multiple of ", kKeyBytes));
  }
  RowKeys keys = KeysOf(bytes);
  CAPSTAN_RETURN_IF_ERROR(CheckKeys(*keys));
  return keys;
}

int64_t SparseStore::AnswerElements(const RowKeys& keys) const {
  return static_cast<int64_t>(keys->size()) * config_.dim;
}

absl::Status SparseStore::Keep(const KeepGradient& action, const Gradient& payload) {
  gradients_.insert_or_assign(action.as, SparseSum(payload, config_.dim));
  return absl::OkStatus();
}

absl::Status SparseStore::Add(const AddGradient& action, const Gradient& payload) {
  gradients_.at(action.into).Add(ReadGradient(action.from, payload));
  if (action.from != kIncomingGradient) gradients_.erase(action.from);
  return absl::OkStatus();
}

void SparseStore::Drop(const DropGradient& action) { gradients_.erase(action.gradient); }

void SparseStore::Release(const ReleasePrevious&) { previous_.reset(); }

absl::Status SparseStore::Apply(const ApplyGradient& action, const Gradient& payload) {
  rows_.PrepareUpdates(action.learning_rate_factor, action.evict_before.value());
  const Gradient gradient = ReadGradient(action.gradient, payload);
  std::vector<float> before;
  if (action.keep_previous) {
    before.resize(static_cast<size_t>(AnswerElements(gradient.shared_keys())));
    CAPSTAN_RETURN_IF_ERROR(rows_.Read(gradient.keys(), before.data()));
  }
  SparseRows::Effects effects{.want_weights = action.keep_previous};
  const bool tell = action.keep_previous || removed_.keeping();
  CAPSTAN_RETURN_IF_ERROR(
      rows_.Update(action.step, gradient.keys(), gradient.values(), tell ? &effects : nullptr));
  removed_.Add(effects.evicted, action.step + 1, RemovedMax(rows_.rows()));
  if (action.keep_previous) {
    KeepPrevious(Gradient(gradient.shared_keys(), WireValues(before)), effects);
  }
  if (action.gradient != kIncomingGradient) gradients_.erase(action.gradient);
  // Each slot's gradient had room, but all of them together may not.
  return CheckRows(rows_.rows());
}

void SparseStore::KeepPrevious(const Gradient& before, const SparseRows::Effects& effects) {
  previous_.emplace(before, config_.dim);
  previous_->Remove(effects.refused);
  if (effects.evicted.empty()) return;
  // No evicted row is among the rows that the update named, so the sum gets both.
  auto keys = std::make_shared<const std::vector<uint64_t>>(effects.evicted);
  previous_->Add(Gradient(std::move(keys), WireValues(effects.evicted_weights)));
}

// It is not known before the update which rows admission will refuse, so the update checks again.
absl::Status SparseStore::CheckRoom(const Gradient& gradient) const {
  const absl::Span<const uint64_t> keys = gradient.keys();
  if (!rows_.admission().admits_all()) return absl::OkStatus();
  const auto named = static_cast<int64_t>(keys.size());
  if (config_.eviction.rows_max > 0) return CheckRows(named);  // Eviction makes room for new rows.
  const int64_t rows = rows_.rows() + named;
  return CheckRows(rows <= RowsMax() ? rows : rows_.rows() + rows_.CountMissing(keys));
}

absl::Status SparseStore::CheckRows(int64_t rows) const {
  if (rows <= RowsMax()) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("bucket ", bucket_, " of ", config_.buckets,
                                                   " would have ", rows, " rows: expected at most ",
                                                   RowsMax(), "; the table needs more buckets"));
}

int64_t SparseStore::RowsMax() const {
  const int64_t key_and_weights = kKeyBytes + rows_.dim() * int64_t{sizeof(float)};
  const int64_t state =
      (rows_.state_floats() + 1) * int64_t{sizeof(float)} + int64_t{sizeof(uint32_t)};
  return (snapshot_bytes_max_ - rows_.admission().bytes()) /
         ((Evicts() ? 3 : 2) * key_and_weights + state);
}

Gradient SparseStore::ReadGradient(GradientId id, const Gradient& payload) const {
  return id == kIncomingGradient ? payload : gradients_.at(id).gradient();
}

absl::StatusOr<absl::Cord> SparseStore::Lend(ReadFrom from, const RowKeys& keys,
                                             NumberFormat format) const {
  if (from == ReadFrom::kNothing) return absl::Cord();
  CAPSTAN_ASSIGN_OR_RETURN(FloatBuffer rows, FloatBuffer::Allocate(AnswerElements(keys)));
  CAPSTAN_RETURN_IF_ERROR(rows_.Read(*keys, rows.data()));
  if (from == ReadFrom::kPrevious) WritePrevious(*keys, rows.data());
  return format == NumberFormat::kFp32 ? rows.Lend() : EncodedNumbers(format, rows.span());
}

void SparseStore::WritePrevious(const std::vector<uint64_t>& keys, float* rows) const {
  const Gradient previous = previous_->gradient();
  const absl::Span<const uint64_t> changed = previous.keys();
  std::vector<float> row(static_cast<size_t>(config_.dim));
  for (size_t i = 0, j = 0; i < keys.size() && j < changed.size();) {
    const uint64_t asked = KeyHash(keys[i]);
    const uint64_t held = KeyHash(changed[j]);
    if (asked == held) {
      const UnalignedFloat* const before =
          previous.values().Read(static_cast<int64_t>(j) * config_.dim, config_.dim, row.data());
      std::memcpy(rows + static_cast<int64_t>(i) * config_.dim, before, row.size() * sizeof(float));
    }
    if (asked <= held) ++i;
    if (held <= asked) ++j;
  }
}

absl::StatusOr<ScannedRows> SparseStore::Scan(const RowScan& scan) const {
  const int64_t weight_bytes = rows_.dim() * int64_t{sizeof(float)};
  const auto fitting = static_cast<size_t>(std::max<int64_t>(scan.bytes_max, 0)) /
                       static_cast<size_t>(kKeyBytes + weight_bytes);
  const size_t rows_max = std::clamp<size_t>(fitting, 1, kScanRowsMax);
  const int64_t version = rows_.lifetime().version;
  const auto place_of = [&](uint64_t key) { return PlaceOf(KeyHash(key), config_.buckets).place; };
  SparseRows::RowBatch seen;
  std::vector<SparseRows::Row> rows;
  std::vector<uint64_t> unchanged;
  uint64_t place = scan.place;
  size_t looked = 0;
  int runs = 0;
  do {
    CAPSTAN_ASSIGN_OR_RETURN(place, rows_.AppendRows(place, &seen));
    for (; looked < seen.rows.size(); ++looked) {
      const SparseRows::Row& row = seen.rows[looked];
      if (!scan.since.has_value() || ChangedSince(*scan.since, row.stamp, version)) {
        rows.push_back(row);
      } else if (scan.unchanged_keys) {
        unchanged.push_back(row.key);
      }
    }
  } while (place != 0 && rows.size() < rows_max && looked < kScanRowsMax && ++runs < kScanRunsMax);
  if (rows.size() > rows_max) {
    place = place_of(rows[rows_max].key);
    rows.resize(rows_max);
    while (!unchanged.empty() && place_of(unchanged.back()) >= place) unchanged.pop_back();
  }
  ScannedRows scanned;
  if (place != 0) scanned.next = place;
  scanned.rows.reserve(rows.size() * static_cast<size_t>(kKeyBytes + weight_bytes));
  for (const SparseRows::Row& row : rows) Append(&row.key, kKeyBytes, &scanned.rows);
  for (const SparseRows::Row& row : rows) Append(row.weights, weight_bytes, &scanned.rows);
  AppendKeys(unchanged, &scanned.unchanged);
  return scanned;
}

absl::Status SparseStore::Save(bool previous, v1::ShardSnapshot* snapshot) const {
  SavedRows saved(rows_);
  uint64_t place = 0;
  do {
    SparseRows::RowBatch batch;
    CAPSTAN_ASSIGN_OR_RETURN(place, rows_.AppendRows(place, &batch));
    saved.Add(batch.rows);
  } while (place != 0);
  saved.MoveTo(snapshot);
  SaveRest(previous, snapshot);
  return absl::OkStatus();
}

absl::Status SparseStore::Capture(PinId pin, std::optional<int64_t> since, bool previous,
                                  v1::ShardSnapshot* snapshot) {
  if (since.has_value() && TellsSince(*since)) {
    v1::RowsSince& named = *snapshot->mutable_since();
    named.set_version(*since);
    if (Evicts()) AppendKeys(removed_.Since(*since), named.mutable_removed());
  }
  SaveRest(previous, snapshot);
  if (!snapshot->has_since()) snapshot->set_rows_to_come(rows_.rows());
  rows_.Pin(pin);
  return absl::OkStatus();
}

bool SparseStore::TellsSince(int64_t since) const {
  // A renewal changes the stamps of rows that no update has named.
  const bool renewed = since / kRenewEvery != rows_.lifetime().version / kRenewEvery;
  if (renewed || (Evicts() && !removed_.KnownSince(since))) return false;
  return 2 * rows_.CountChanged(since) <= rows_.rows();
}

absl::StatusOr<std::optional<uint64_t>> SparseStore::ReadPinned(const PinnedRead& read,
                                                                v1::ShardSnapshot* piece) {
  SavedRows saved(rows_);
  uint64_t place = read.place;
  int runs = 0;
  do {
    SparseRows::RowBatch batch;
    CAPSTAN_ASSIGN_OR_RETURN(place, rows_.AppendPinned(read.pin, read.since, place, &batch));
    saved.Add(batch.rows);
  } while (place != 0 && saved.bytes() < read.bytes_max && ++runs < kScanRunsMax);
  saved.MoveTo(piece);
  if (place == 0) return std::nullopt;
  if (read.passes) rows_.history().Pass(read.pin, place);
  return place;
}

absl::StatusOr<RowsThen> SparseStore::ReadRowsThen(PinId pin, const RowKeys& keys) const {
  SparseRows::PinnedRows read;
  CAPSTAN_RETURN_IF_ERROR(rows_.ReadPinned(pin, *keys, &read));
  RowsThen then;
  then.found.resize((keys->size() + 7) / 8, '\0');
  for (size_t i = 0; i < read.found.size(); ++i) {
    if (read.found[i]) then.found[i / 8] = static_cast<char>(then.found[i / 8] | 1 << i % 8);
  }
  Append(read.weights.data(), std::ssize(read.weights) * int64_t{sizeof(float)}, &then.rows);
  return then;
}

absl::StatusOr<ScannedRows> SparseStore::ScanThen(const PinnedRead& read) const {
  const int64_t weight_bytes = rows_.dim() * int64_t{sizeof(float)};
  ScannedRows scanned;
  std::string weights;
  uint64_t place = read.place;
  int runs = 0;
  do {
    SparseRows::RowBatch batch;
    CAPSTAN_ASSIGN_OR_RETURN(place, rows_.AppendPinned(read.pin, std::nullopt, place, &batch));
    for (const SparseRows::Row& row : batch.rows) {
      Append(&row.key, kKeyBytes, &scanned.rows);
      Append(row.weights, weight_bytes, &weights);
    }
  } while (place != 0 && std::ssize(scanned.rows) + std::ssize(weights) < read.bytes_max &&
           ++runs < kScanRunsMax);
  scanned.rows += weights;
  if (place != 0) scanned.next = place;
  return scanned;
}

void SparseStore::SaveRest(bool previous, v1::ShardSnapshot* snapshot) const {
  snapshot->set_elements(1);
  if (previous) previous_->gradient().AppendTo(snapshot->mutable_previous());
  SaveLifetime(rows_.lifetime(), snapshot->mutable_bucket());
}

void SparseStore::KeepRemovedSince(int64_t version) {
  if (!Evicts()) return;
  removed_.KeepSince(version, rows_.lifetime().version);
}

absl::Status SparseStore::Restore(const v1::ShardSnapshot& snapshot) {
  gradients_.clear();
  previous_.reset();
  removed_.Forget();
  restored_to_.reset();
  if (snapshot.has_since()) {
    return absl::DataLossError(absl::StrCat("a snapshot of what changed since version ",
                                            snapshot.since().version(), ": expected all rows"));
  }
  CAPSTAN_ASSIGN_OR_RETURN(rows_, SparseRows::Make(config_));
  CAPSTAN_RETURN_IF_ERROR(RestoreRows(snapshot));
  if (!Planted(PlantedBug::kInstallWithoutRowLifetime)) {
    CAPSTAN_RETURN_IF_ERROR(rows_.SetLifetime(LifetimeIn(snapshot)));
  }
  if (!snapshot.state().previous_readable()) return absl::OkStatus();
  const absl::Cord bytes = absl::MakeCordFromExternal(snapshot.previous(), [] {});
  const absl::StatusOr<Gradient> previous = Parse(bytes, NumberFormat::kFp32);
  if (!previous.ok()) {
    return absl::DataLossError(absl::StrCat("previous values: ", previous.status().message()));
  }
  previous_.emplace(*previous, config_.dim);
  return absl::OkStatus();
}

int64_t SparseStore::RoomBytesMax(const v1::ShardSnapshot& snapshot) const {
  const int64_t rows = RowsOf(snapshot);
  return CheckRows(rows).ok() ? KeyIndex::ReservedBytesMax(rows) : 0;
}

absl::Status SparseStore::RestoreRows(const v1::ShardSnapshot& snapshot) {
  if (snapshot.elements() != 1) {
    return absl::DataLossError(
        absl::StrCat("a snapshot of ", snapshot.elements(), " buckets: expected 1"));
  }
  const int64_t rows = RowsOf(snapshot);
  const absl::Status fits = CheckRows(rows);
  if (!fits.ok()) return absl::DataLossError(fits.message());
  CAPSTAN_RETURN_IF_ERROR(rows_.MakeRoom(rows));
  const bool none = snapshot.values().empty() && snapshot.optimizer_state_size() == 0;
  if (!none) CAPSTAN_RETURN_IF_ERROR(RestoreMore(snapshot));
  for (const v1::ShardSnapshot& piece : snapshot.pieces()) {
    CAPSTAN_RETURN_IF_ERROR(RestoreMore(piece));
  }
  return absl::OkStatus();
}

absl::Status SparseStore::RestoreMore(const v1::ShardSnapshot& piece) {
  const absl::Cord bytes = absl::MakeCordFromExternal(piece.values(), [] {});
  const absl::StatusOr<Gradient> values = Parse(bytes, NumberFormat::kFp32);
  if (!values.ok()) return absl::DataLossError(values.status().message());
  const absl::Span<const uint64_t> keys = values->keys();
  CAPSTAN_RETURN_IF_ERROR(CheckSizes(piece, rows_, keys.size()));
  if (keys.empty()) return absl::OkStatus();
  if (restored_to_.has_value() && KeyHash(keys.front()) <= *restored_to_) {
    return absl::DataLossError(absl::StrCat(
        "key ", keys.front(), " begins a piece: expected one behind those of the piece before"));
  }
  restored_to_ = KeyHash(keys.back());
  const absl::Status fits = CheckRows(rows_.rows() + std::ssize(keys));
  if (!fits.ok()) return absl::DataLossError(fits.message());
  return PutRows(piece, keys, &rows_);
}

int64_t SparseStore::bytes() const {
  int64_t bytes = rows_.bytes() + rows_.history().bytes() + removed_.bytes() +
                  (previous_.has_value() ? previous_->bytes() : 0);
  for (const auto& [id, sum] : gradients_) bytes += sum.bytes();
  return bytes;
}

}  // namespace capstan::server
