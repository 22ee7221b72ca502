// Codec: protobuf messages of the data plane, and routing tables <-> plain structs of the core.
//
// Decoding checks what can be checked without state: ranges of numbers, value types. What depends
// on the job (its generation, its shards and their sizes) is CallChecks's.
// Thread safety: pure functions.
#ifndef CAPSTAN_SERVER_ENGINE_CODEC_H_
#define CAPSTAN_SERVER_ENGINE_CODEC_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/types/ids.h"
#include "proto/parameter_server.pb.h"
#include "proto/scheduler.pb.h"
#include "server/core/messages/messages.h"
#include "server/core/replication/job_routing.h"
#include "server/store/state_codec.h"

namespace capstan::server {

inline constexpr int32_t kWaitLimitMsMax = 60'000;

// A reader (rank -1) needs no incarnation.
// Errors: kInvalidArgument  rank or incarnation out of range.
absl::Status CheckCaller(const v1::Caller& caller);

// The push of one shard of a message; the token is left 0.
PushHead DecodePush(const v1::PushRequest& request, const v1::ShardPush& shard);

// The pull of one shard of a message; token and deadline are left 0.
// Errors: kInvalidArgument  held_version below -1, or an unknown value type.
absl::StatusOr<PullHead> DecodePull(const v1::PullRequest& request, const v1::ShardPull& shard);

void EncodePushReply(const ReplyPush& reply, v1::ShardPushResult* result);

// The caller adds the values and their type (kValues); EncodeWaitingOn adds what a pull waits for.
void EncodePullReply(const ReplyPull& reply, v1::ShardValues* result);

void EncodeWaitingOn(const ShardKey& key, const WaitingOn& waiting_on, v1::WaitingOn* waiting);

FollowerKey KeyOfServer(const v1::ServerAddress& server);
// Servers that the table names and does not list are left out.
RoutingTable DecodeRouting(const v1::RoutingTable& routing);

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_ENGINE_CODEC_H_
