// Row pieces: joins the pieces in which the rows of a bucket's snapshot come.
//
// Thread safety: pure.
#ifndef CAPSTAN_COMMON_CHECKPOINT_ROW_PIECES_H_
#define CAPSTAN_COMMON_CHECKPOINT_ROW_PIECES_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "proto/shard_state.pb.h"

namespace capstan {

// The size of a row's key in a snapshot.
inline constexpr size_t kKeyBytes = sizeof(uint64_t);

// Puts the rows of snapshot->pieces behind the snapshot's own rows, in their order, and removes the
// pieces. The snapshot then expects no more rows.
// Errors: kDataLoss  a piece whose parts are not those of a whole number of rows; names it.
absl::Status JoinRowPieces(v1::ShardSnapshot* snapshot);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_CHECKPOINT_ROW_PIECES_H_
