// SparseSum: the sum of gradients of rows: keys in ascending order of their hash, and a row for
// each.
//
// The sum of a key is the sum of the addends that name it, in the order of the additions: a key
// that one of two lacks keeps the other's bits.
// Thread safety: thread-compatible.
#ifndef CAPSTAN_SERVER_STORE_SPARSE_SPARSE_SUM_H_
#define CAPSTAN_SERVER_STORE_SPARSE_SPARSE_SUM_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "server/store/gradient.h"

namespace capstan::server {

class SparseSum {
 public:
  // A copy of `gradient`, whose values are [keys, dim].
  SparseSum(const Gradient& gradient, int64_t dim);

  void Add(const Gradient& addend);
  void Remove(absl::Span<const size_t> rows);  // `rows`: indices, which ascend.

  // Valid until the next Add.
  Gradient gradient() const { return Gradient(keys_, WireValues(values_)); }
  int64_t bytes() const;

 private:
  int64_t dim_;
  RowKeys keys_;
  std::vector<float> values_;
};

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_STORE_SPARSE_SPARSE_SUM_H_
