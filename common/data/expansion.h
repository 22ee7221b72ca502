// DecompressedBytesMax: how many bytes compressed data may become in memory.
//
// Deflate can expand 1 MB to up to 1 GB, so that a small file could take all of a machine's memory.
// Images that are worth training on do not compress like that.
// Thread safety: a pure function.
#ifndef CAPSTAN_COMMON_DATA_EXPANSION_H_
#define CAPSTAN_COMMON_DATA_EXPANSION_H_

#include <algorithm>
#include <cstdint>

namespace capstan {

inline constexpr int64_t kExpansionMax = 250;  // Bytes that one compressed byte may stand for.
// Any data may become this large, such as small files of labels that are all alike.
inline constexpr int64_t kAnyExpansionBytes = 64 << 20;

// The bound of `compressed_bytes` bytes that are decompressed whole: the larger of
// kAnyExpansionBytes and kExpansionMax times as many, and at most `bytes_max`.
constexpr int64_t DecompressedBytesMax(int64_t compressed_bytes, int64_t bytes_max) {
  if (compressed_bytes > bytes_max / kExpansionMax) return bytes_max;
  return std::min(bytes_max, std::max(kAnyExpansionBytes, compressed_bytes * kExpansionMax));
}

}  // namespace capstan

#endif  // CAPSTAN_COMMON_DATA_EXPANSION_H_
