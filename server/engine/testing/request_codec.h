// Requests as clients make them: the inverse of what server/engine/codec.h decodes.
// Thread safety: pure functions.
#ifndef CAPSTAN_SERVER_ENGINE_TESTING_REQUEST_CODEC_H_
#define CAPSTAN_SERVER_ENGINE_TESTING_REQUEST_CODEC_H_

#include "absl/types/span.h"
#include "common/types/ids.h"
#include "proto/parameter_server.pb.h"
#include "server/core/messages/messages.h"

namespace capstan::server {

// Adds a shard's push to a message and sets what the message says once. `values` is one fp32 an
// element.
void EncodePush(const ShardKey& key, const PushHead& push, absl::Span<const float> values,
                v1::PushRequest* request);
// Adds a shard's pull in the same way.
void EncodePull(const ShardKey& key, const PullHead& pull, v1::PullRequest* request);

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_ENGINE_TESTING_REQUEST_CODEC_H_
