#include "common/checkpoint/row_delta.h"

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/checkpoint/row_pieces.h"
#include "common/sparse/key_hash.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"

namespace capstan {
namespace {

constexpr size_t kWordBytes = sizeof(uint32_t);

// Returns the hash of the i-th of these keys, which orders the keys of a bucket.
uint64_t HashAt(absl::string_view keys, size_t i) {
  uint64_t key;
  std::memcpy(&key, keys.data() + i * kKeyBytes, kKeyBytes);
  return KeyHash(key);
}

// Points at the rows of one snapshot and holds the sizes of their parts.
struct Rows {
  const v1::ShardSnapshot* of = nullptr;
  size_t count = 0;
  size_t weight_bytes = 0;  // Bytes of one row's weights; 0 if there are no rows.
  size_t state_bytes = 0;
  bool counted = false;  // Each row has a count of its updates.

  uint64_t Hash(size_t i) const { return HashAt(of->values(), i); }
};

absl::StatusOr<Rows> RowsOf(const v1::ShardSnapshot& snapshot) {
  const size_t stamps = snapshot.bucket().stamps().size();
  const int parts = snapshot.optimizer_state_size();
  Rows rows{.of = &snapshot, .count = stamps / kWordBytes, .counted = parts == 2};
  const size_t values = snapshot.values().size();
  const size_t state = parts > 0 ? snapshot.optimizer_state(0).size() : 0;
  const size_t n = rows.count;
  const bool divide =
      n == 0 ? values + state == 0 : values % n == 0 && values / n > kKeyBytes && state % n == 0;
  const bool counts = parts < 2 || snapshot.optimizer_state(1).size() == n * kWordBytes;
  if (snapshot.elements() != 1 || stamps % kWordBytes != 0 || parts < 1 || parts > 2 || !divide ||
      !counts) {
    return absl::DataLossError(absl::StrCat("a snapshot of ", snapshot.elements(), " buckets with ",
                                            stamps, " bytes of stamps, ", values, " of rows, ",
                                            state, " of state in ", parts,
                                            " parts: expected those of a whole number of rows"));
  }
  if (n > 0) {
    rows.weight_bytes = values / n - kKeyBytes;
    rows.state_bytes = state / n;
  }
  return rows;
}

// Collects the merged rows column by column.
class Merged {
 public:
  // Reserves the bytes of both snapshots, which is the most that the result needs.
  Merged(const v1::ShardSnapshot& a, const v1::ShardSnapshot& b) {
    weights_.reserve(a.values().size() + b.values().size());
    state_.reserve(a.optimizer_state(0).size() + b.optimizer_state(0).size());
  }

  void Take(const Rows& rows, size_t i) {
    const v1::ShardSnapshot& from = *rows.of;
    keys_.append(from.values(), i * kKeyBytes, kKeyBytes);
    weights_.append(from.values(), rows.count * kKeyBytes + i * rows.weight_bytes,
                    rows.weight_bytes);
    state_.append(from.optimizer_state(0), i * rows.state_bytes, rows.state_bytes);
    if (rows.counted) counts_.append(from.optimizer_state(1), i * kWordBytes, kWordBytes);
    stamps_.append(from.bucket().stamps(), i * kWordBytes, kWordBytes);
  }

  void MoveTo(v1::ShardSnapshot* snapshot) {
    *snapshot->mutable_values() = std::move(keys_);
    snapshot->mutable_values()->append(weights_);
    *snapshot->mutable_optimizer_state(0) = std::move(state_);
    if (snapshot->optimizer_state_size() > 1) {
      *snapshot->mutable_optimizer_state(1) = std::move(counts_);
    }
    *snapshot->mutable_bucket()->mutable_stamps() = std::move(stamps_);
  }

 private:
  std::string keys_;
  std::string weights_;
  std::string state_;
  std::string counts_;
  std::string stamps_;
};

absl::Status CheckPair(const Rows& base, const Rows& delta) {
  const v1::RowsSince& since = delta.of->since();
  if (!delta.of->has_since() || base.of->has_since() ||
      since.version() != base.of->state().version() || since.removed().size() % kKeyBytes != 0) {
    return absl::DataLossError(absl::StrCat(
        "what changed since version ", since.version(), " (", since.removed().size(),
        " bytes of keys that left): expected that since version ", base.of->state().version()));
  }
  const bool both = base.count > 0 && delta.count > 0;
  if (base.counted != delta.counted || (both && (base.weight_bytes != delta.weight_bytes ||
                                                 base.state_bytes != delta.state_bytes))) {
    return absl::DataLossError(absl::StrCat("rows of ", delta.weight_bytes, " and ",
                                            delta.state_bytes, " bytes: expected ",
                                            base.weight_bytes, " and ", base.state_bytes));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ApplyRowDelta(v1::ShardSnapshot delta, v1::ShardSnapshot* snapshot) {
  absl::StatusOr<Rows> whole = RowsOf(*snapshot);
  if (!whole.ok()) return Annotate(whole.status(), "the base");
  CAPSTAN_ASSIGN_OR_RETURN(const Rows changed, RowsOf(delta));
  CAPSTAN_RETURN_IF_ERROR(CheckPair(*whole, changed));
  const std::string& removed = delta.since().removed();
  const size_t removed_count = removed.size() / kKeyBytes;
  Merged merged(*snapshot, delta);
  size_t r = 0;
  for (size_t i = 0, j = 0; i < whole->count || j < changed.count;) {
    const bool new_first =
        i == whole->count || (j < changed.count && changed.Hash(j) <= whole->Hash(i));
    if (new_first) {
      if (i < whole->count && changed.Hash(j) == whole->Hash(i)) ++i;
      merged.Take(changed, j++);
      continue;
    }
    while (r < removed_count && HashAt(removed, r) < whole->Hash(i)) ++r;
    const bool left = r < removed_count && HashAt(removed, r) == whole->Hash(i);
    if (!left) merged.Take(*whole, i);
    ++i;
  }
  merged.MoveTo(&delta);
  delta.clear_since();
  *snapshot = std::move(delta);
  return absl::OkStatus();
}

}  // namespace capstan
