// The limit of what one message between a worker, a server and its replicas holds of one shard. A
// message of 64 MiB (common/net/channel.h) has room for it and for all that describes it.
//
// Thread safety: constants.
#ifndef CAPSTAN_COMMON_TYPES_MESSAGE_LIMITS_H_
#define CAPSTAN_COMMON_TYPES_MESSAGE_LIMITS_H_

#include <cstdint>

namespace capstan {

// Bytes of keys and values in one push, pull or record.
inline constexpr int64_t kShardBytesMax = 60 << 20;

}  // namespace capstan

#endif  // CAPSTAN_COMMON_TYPES_MESSAGE_LIMITS_H_
