// FillInitialValues: the values that a table's elements start with.
//
// Element e of table t depends on (seed, t, e) and its tensor's initializer alone, so the values
// are the same whatever the table is cut into. With key = MixKey(MixKey(seed, 0), t):
//   uniform  (2 u - 1) * bound, u the word number e of the stream as a unit float
//   normal   Box-Muller on the first two words of the block (low e, high 1), computed in double
// Thread safety: a pure function.
#ifndef CAPSTAN_COMMON_MODEL_INITIAL_VALUES_H_
#define CAPSTAN_COMMON_MODEL_INITIAL_VALUES_H_

#include <cstdint>

#include "absl/types/span.h"
#include "proto/parameter_server.pb.h"

namespace capstan {

// Writes elements [begin, begin + out.size()) of `table`.
// REQUIRES: ValidateTable(table) is OK; the range lies in the table.
void FillInitialValues(const v1::TableSpec& table, uint64_t seed, int64_t begin,
                       absl::Span<float> out);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_MODEL_INITIAL_VALUES_H_
