// Limits of the messages between workers, servers and replicas. The largest message has 64 MiB
// (common/net/channel.h), which leaves room for what describes the values.
//
// Thread safety: constants.
#ifndef CAPSTAN_COMMON_TYPES_MESSAGE_LIMITS_H_
#define CAPSTAN_COMMON_TYPES_MESSAGE_LIMITS_H_

#include <cstdint>

namespace capstan {

// Bytes of values in one answer; of keys and values of a bucket in one push; of one record.
inline constexpr int64_t kShardBytesMax = 60 << 20;

}  // namespace capstan

#endif  // CAPSTAN_COMMON_TYPES_MESSAGE_LIMITS_H_
