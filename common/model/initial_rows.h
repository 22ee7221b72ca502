// RowInitializer: the values that a row of a sparse table starts with.
//
// Column c of the row of key k in table t depends on (seed, t, k, c) and the initializer alone, so
// that a row is the same wherever and whenever it is made. With stream = MixKey(MixKey(seed, 0), t)
// and b(i) = Philox4x32(stream, k, 2 + i):
//   uniform  (2 u - 1) * bound, u word c % 4 of b(c / 4) as a unit float
//   normal   NormalOf (common/random/normal.h) words 2 * (c % 2) and 2 * (c % 2) + 1 of b(c / 2),
//            times the standard deviation, rounded to fp32
// The first zero_columns are 0, whatever the initializer; the others do not depend on how many.
// Thread safety: constant after construction.
#ifndef CAPSTAN_COMMON_MODEL_INITIAL_ROWS_H_
#define CAPSTAN_COMMON_MODEL_INITIAL_ROWS_H_

#include <cstdint>

#include "absl/types/span.h"
#include "common/types/ids.h"
#include "proto/parameter_server.pb.h"

namespace capstan {

class RowInitializer {
 public:
  // REQUIRES: 0 <= zero_columns <= dim, 1 <= dim.
  RowInitializer(const v1::Initializer& initializer, uint64_t seed, TableId table, int64_t dim,
                 int64_t zero_columns = 0);

  // Writes the row of keys[i] to rows[i][0, dim). One call with many keys is faster than many.
  void Fill(absl::Span<const uint64_t> keys, absl::Span<float* const> rows) const;

 private:
  void FillUniform(uint64_t key, float* row) const;
  void FillNormal(absl::Span<const uint64_t> keys, absl::Span<float* const> rows) const;

  v1::Initializer::KindCase kind_;
  float scale_;  // The constant, bound or standard deviation.
  uint64_t stream_;
  int64_t dim_;
  int64_t zero_columns_;
};

}  // namespace capstan

#endif  // CAPSTAN_COMMON_MODEL_INITIAL_ROWS_H_
