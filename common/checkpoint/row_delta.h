// Row delta: a bucket's snapshot with only the changes since another one, and how to apply it to
// that one.
//
//   base + delta = what a whole snapshot would have had at the delta's moment, bit by bit
//
// Thread safety: pure functions.
#ifndef CAPSTAN_COMMON_CHECKPOINT_ROW_DELTA_H_
#define CAPSTAN_COMMON_CHECKPOINT_ROW_DELTA_H_

#include "absl/status/status.h"
#include "proto/shard_state.pb.h"

namespace capstan {

// Brings `snapshot`, which is whole, to the moment of `delta`: removes the rows of keys that have
// left, and adds or replaces the rows of `delta`; all else is taken from `delta`.
// Errors: kDataLoss  `delta` is no delta, or since another version, or the sizes of either are
//         wrong; `snapshot` is as it was.
absl::Status ApplyRowDelta(v1::ShardSnapshot delta, v1::ShardSnapshot* snapshot);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_CHECKPOINT_ROW_DELTA_H_
