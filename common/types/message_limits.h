// Limits of the messages between workers, servers, replicas and the scheduler.
//
// Thread safety: constants.
#ifndef CAPSTAN_COMMON_TYPES_MESSAGE_LIMITS_H_
#define CAPSTAN_COMMON_TYPES_MESSAGE_LIMITS_H_

#include <cstdint>

namespace capstan {

// Largest message that either side accepts, bytes: twice the largest shard of a dense table.
inline constexpr int kMessageBytesMax = 64 << 20;

// Limit in bytes of the values in one answer, of the keys and values of a bucket in one push, and
// of one record. The rest of a message is for what describes them.
inline constexpr int64_t kShardBytesMax = 60 << 20;

// Most logs, and most removed logs, in a server's registration; it leaves out further ones.
inline constexpr int kLogsToldMax = 1000;

}  // namespace capstan

#endif  // CAPSTAN_COMMON_TYPES_MESSAGE_LIMITS_H_
