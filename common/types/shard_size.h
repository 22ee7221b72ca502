// The limits of a shard of a dense table, which the scheduler keeps to and servers check.
//
// Thread safety: constants.
#ifndef CAPSTAN_COMMON_TYPES_SHARD_SIZE_H_
#define CAPSTAN_COMMON_TYPES_SHARD_SIZE_H_

#include <cstdint>

namespace capstan {

inline constexpr int64_t kShardElementsMax = int64_t{1} << 20;  // 4 MiB of fp32.
// Most elements of a shard that must not be cut, because its rule takes norms over whole tensors:
// 32 MiB of fp32, half of what a message may have.
inline constexpr int64_t kWholeTensorElementsMax = int64_t{1} << 23;

}  // namespace capstan

#endif  // CAPSTAN_COMMON_TYPES_SHARD_SIZE_H_
