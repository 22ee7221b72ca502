// Row delta: a bucket's snapshot that has only what changed since another one, put together with
// that.
//
//   base + delta = what a whole snapshot would have had at the delta's moment, bit by bit
//
// Thread safety: pure functions.
#ifndef CAPSTAN_COMMON_CHECKPOINT_ROW_DELTA_H_
#define CAPSTAN_COMMON_CHECKPOINT_ROW_DELTA_H_

#include "absl/status/status.h"
#include "proto/shard_state.pb.h"

namespace capstan {

// Makes `snapshot`, which is whole, what it was at `delta`'s moment: rows of keys that `delta` says
// have left go, then its rows come in; all else is `delta`'s.
// Errors: kDataLoss  `delta` is none, or since another version, or the sizes of either cannot be;
//         `snapshot` is as it was.
absl::Status ApplyRowDelta(v1::ShardSnapshot delta, v1::ShardSnapshot* snapshot);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_CHECKPOINT_ROW_DELTA_H_
