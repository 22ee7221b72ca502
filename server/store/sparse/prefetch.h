// Prefetch: asks for memory that will be read soon. Thread safety: a pure function.
#ifndef CAPSTAN_SERVER_STORE_SPARSE_PREFETCH_H_
#define CAPSTAN_SERVER_STORE_SPARSE_PREFETCH_H_

#include <cstdint>

namespace capstan::server {

inline constexpr uintptr_t kCacheLine = 64;

// Prefetches every cache line that has one of these bytes; rows begin anywhere in a line.
inline void Prefetch(const char* data, int64_t bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(data);
  const uintptr_t end = begin + static_cast<uintptr_t>(bytes);
  for (uintptr_t line = begin / kCacheLine * kCacheLine; line < end; line += kCacheLine) {
    __builtin_prefetch(reinterpret_cast<const void*>(line));
  }
}

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_STORE_SPARSE_PREFETCH_H_
