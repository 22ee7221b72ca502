#include "server/store/sparse/sparse_sum.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "common/sparse/key_hash.h"

namespace capstan::server {
namespace {

std::vector<float> CopyOf(const WireValues& values) {
  std::vector<float> copy(static_cast<size_t>(values.size()));
  values.CopyTo(copy.data());
  return copy;
}

}  // namespace

SparseSum::SparseSum(const Gradient& gradient, int64_t dim)
    : dim_(dim), keys_(gradient.shared_keys()), values_(CopyOf(gradient.values())) {}

void SparseSum::Add(const Gradient& addend) {
  const absl::Span<const uint64_t> mine = *keys_;
  const absl::Span<const uint64_t> theirs = addend.keys();
  const std::vector<float> addend_values = CopyOf(addend.values());
  const float* a = values_.data();
  const float* b = addend_values.data();
  std::vector<uint64_t> keys;
  std::vector<float> values;
  keys.reserve(mine.size() + theirs.size());
  values.reserve(values_.size() + addend_values.size());
  for (size_t i = 0, j = 0; i < mine.size() || j < theirs.size();) {
    const bool has_a =
        j == theirs.size() || (i < mine.size() && KeyHash(mine[i]) <= KeyHash(theirs[j]));
    const bool has_b =
        i == mine.size() || (j < theirs.size() && KeyHash(theirs[j]) <= KeyHash(mine[i]));
    keys.push_back(has_a ? mine[i] : theirs[j]);
    values.insert(values.end(), has_a ? a : b, (has_a ? a : b) + dim_);
    if (has_a && has_b) {
      float* const sum = values.data() + values.size() - dim_;
      for (int64_t c = 0; c < dim_; ++c) sum[c] += b[c];
    }
    if (has_a) ++i, a += dim_;
    if (has_b) ++j, b += dim_;
  }
  keys_ = std::make_shared<const std::vector<uint64_t>>(std::move(keys));
  values_ = std::move(values);
}

void SparseSum::Remove(absl::Span<const size_t> rows) {
  if (rows.empty()) return;
  auto keys = std::make_shared<std::vector<uint64_t>>();
  std::vector<float> values;
  size_t next = 0;  // An index into `rows`.
  for (size_t i = 0; i < keys_->size(); ++i) {
    if (next < rows.size() && rows[next] == i) {
      ++next;
      continue;
    }
    keys->push_back((*keys_)[i]);
    const float* const row = values_.data() + static_cast<int64_t>(i) * dim_;
    values.insert(values.end(), row, row + dim_);
  }
  keys_ = std::move(keys);
  values_ = std::move(values);
}

int64_t SparseSum::bytes() const {
  return static_cast<int64_t>(keys_->size() * sizeof(uint64_t) + values_.size() * sizeof(float));
}

}  // namespace capstan::server
