#include "server/store/sparse/saved_rows.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"

namespace capstan::server {
namespace {

constexpr int64_t kStampBytes = sizeof(uint32_t);

// One part of all rows; each row adds the same number of bytes to it.
class Column {
 public:
  Column(std::string* part, size_t rows, size_t row_bytes) : row_bytes_(row_bytes) {
    const size_t before = part->size();
    part->resize(before + rows * row_bytes);
    at_ = part->data() + before;
  }
  void Add(const void* row) {
    std::memcpy(at_, row, row_bytes_);
    at_ += row_bytes_;
  }

 private:
  const size_t row_bytes_;
  char* at_;
};

uint32_t WordAt(const std::string& words, size_t i) {
  uint32_t word;
  std::memcpy(&word, words.data() + i * sizeof(word), sizeof(word));
  return word;
}

}  // namespace

void SavedRows::Add(const std::vector<SparseRows::Row>& rows) {
  const auto floats = [](int64_t count) { return static_cast<size_t>(count) * sizeof(float); };
  const bool counted = rows_.counts_updates();
  Column keys(&keys_, rows.size(), kKeyBytes);
  Column weights(&weights_, rows.size(), floats(rows_.dim()));
  Column state(&state_, rows.size(), floats(rows_.state_floats()));
  Column counts(&counts_, rows.size(), counted ? sizeof(uint32_t) : 0);
  Column stamps(&stamps_, rows.size(), kStampBytes);
  for (const SparseRows::Row& row : rows) {
    keys.Add(&row.key);
    weights.Add(row.weights);
    state.Add(row.weights + rows_.dim());
    counts.Add(&row.count);
    stamps.Add(&row.stamp);
  }
}

int64_t SavedRows::bytes() const {
  return static_cast<int64_t>(keys_.size() + weights_.size() + state_.size() + counts_.size() +
                              stamps_.size());
}

void SavedRows::MoveTo(v1::ShardSnapshot* snapshot) {
  keys_ += weights_;
  *snapshot->mutable_values() = std::move(keys_);
  *snapshot->add_optimizer_state() = std::move(state_);
  if (rows_.counts_updates()) *snapshot->add_optimizer_state() = std::move(counts_);
  *snapshot->mutable_bucket()->mutable_stamps() = std::move(stamps_);
}

int64_t RowsIn(const v1::ShardSnapshot& piece) {
  return static_cast<int64_t>(piece.bucket().stamps().size()) / kStampBytes;
}

absl::Status CheckSizes(const v1::ShardSnapshot& piece, const SparseRows& rows, size_t count) {
  const int parts = rows.counts_updates() ? 2 : 1;
  const size_t state_bytes = static_cast<size_t>(rows.state_floats()) * sizeof(float);
  if (piece.optimizer_state_size() != parts ||
      piece.optimizer_state(0).size() != count * state_bytes ||
      (parts == 2 && piece.optimizer_state(1).size() != count * sizeof(uint32_t))) {
    return absl::DataLossError(absl::StrCat(
        count, " rows have optimizer state of another size, in ", piece.optimizer_state_size(),
        " parts: expected ", parts, ", with ", state_bytes, " bytes of state a row"));
  }
  if (piece.bucket().stamps().size() != count * kStampBytes) {
    return absl::DataLossError(absl::StrCat(piece.bucket().stamps().size(), " bytes of stamps of ",
                                            count, " rows: expected ", kStampBytes, " a row"));
  }
  return absl::OkStatus();
}

absl::Status PutRows(const v1::ShardSnapshot& piece, absl::Span<const uint64_t> keys,
                     SparseRows* rows) {
  const size_t weight_bytes = static_cast<size_t>(rows->dim()) * sizeof(float);
  const size_t state_bytes = static_cast<size_t>(rows->state_floats()) * sizeof(float);
  const char* const weights = piece.values().data() + keys.size() * kKeyBytes;
  std::vector<float> row(static_cast<size_t>(rows->dim() + rows->state_floats()));
  for (size_t i = 0; i < keys.size(); ++i) {
    std::memcpy(row.data(), weights + i * weight_bytes, weight_bytes);
    std::memcpy(row.data() + rows->dim(), piece.optimizer_state(0).data() + i * state_bytes,
                state_bytes);
    const uint32_t count =
        rows->counts_updates() ? WordAt(piece.optimizer_state(1), i) : uint32_t{0};
    CAPSTAN_RETURN_IF_ERROR(rows->Put({.key = keys[i],
                                       .weights = row.data(),
                                       .count = count,
                                       .stamp = WordAt(piece.bucket().stamps(), i)}));
  }
  return absl::OkStatus();
}

void SaveLifetime(const SparseRows::Lifetime& lifetime, v1::BucketState* bucket) {
  bucket->set_admission(lifetime.counters.data(), lifetime.counters.size());
  bucket->set_hand(lifetime.hand);
  *bucket->mutable_rows() = lifetime.counts;
  bucket->mutable_rows()->clear_held();
}

SparseRows::Lifetime LifetimeIn(const v1::ShardSnapshot& snapshot) {
  const v1::BucketState& bucket = snapshot.bucket();
  return {.version = snapshot.state().version(),
          .counts = bucket.rows(),
          .hand = bucket.hand(),
          .counters = bucket.admission()};
}

}  // namespace capstan::server
