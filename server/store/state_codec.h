// StateCodec: a shard's records, state and membership: protobuf <-> plain structs of the core.
//
// Messages from replicas, logs and checkpoints are checked here as far as they can be without the
// shard.
// Thread safety: pure functions.
#ifndef CAPSTAN_SERVER_STORE_STATE_CODEC_H_
#define CAPSTAN_SERVER_STORE_STATE_CODEC_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/parameter_server.pb.h"
#include "server/core/messages/membership.h"
#include "server/core/messages/shard_record.h"
#include "server/store/gradient.h"

namespace capstan::server {

// Errors: kInvalidArgument  not in [0, kWorkersMax).
absl::Status CheckRank(int32_t rank);

// Errors: kInvalidArgument  ranks out of range or not ascending, an incarnation of 0, or a
//         start_iteration out of range.
absl::StatusOr<Membership> DecodeMembership(const v1::Membership& membership);
v1::Membership EncodeMembership(const Membership& membership);

// `gradient` is that of a push or update; empty for the others.
v1::ShardRecord EncodeRecord(const ShardRecord& record, const Gradient& gradient);
// Errors: kInvalidArgument  no kind, or a number out of range.
absl::StatusOr<ShardRecord> DecodeRecord(const v1::ShardRecord& record);

// The position stands beside the state, in the snapshot.
v1::ShardState EncodeState(const ShardCoreState& state);
// Errors: kInvalidArgument  a number out of range, or a list out of order.
absl::StatusOr<ShardCoreState> DecodeState(const v1::ShardState& state, int64_t position);

// The floats of a message; copied to `copy` in the rare case that they are not aligned. A rest of
// less than four bytes is left out.
absl::Span<const float> FloatsOf(const std::string& bytes, std::vector<float>* copy);
std::string BytesOf(absl::Span<const float> values);

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_STORE_STATE_CODEC_H_
