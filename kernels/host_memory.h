// Allocates host memory for the CPU backends, aligned to 64 bytes (a cache line, an AVX-512
// register).
//
// Thread safety: pure functions; HostFloats owns its memory.
#ifndef CAPSTAN_KERNELS_HOST_MEMORY_H_
#define CAPSTAN_KERNELS_HOST_MEMORY_H_

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace capstan::kernels {

// No allocation is larger. The limit is far above any operand (kOperandElementsMax) and far below
// any overflow.
inline constexpr int64_t kAllocationBytesMax = int64_t{1} << 40;

// Allocates `bytes` of uninitialised memory. Returns nullptr if there is not enough, or if bytes is
// outside [0, kAllocationBytesMax]. It allocates at least one cache line, so the result for 0 bytes
// is distinct and may be freed.
inline void* AllocateHost(int64_t bytes) {
  constexpr int64_t kAlignment = 64;
  if (bytes < 0 || bytes > kAllocationBytesMax) return nullptr;
  const int64_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  return std::aligned_alloc(kAlignment, static_cast<size_t>(rounded == 0 ? kAlignment : rounded));
}

// Implements Backend::Copy for backends in host memory.
// Errors: kInvalidArgument  bytes is negative.
inline absl::Status CopyHost(void* to, const void* from, int64_t bytes) {
  if (bytes < 0) {
    return absl::InvalidArgumentError(absl::StrCat("copy of ", bytes, " bytes, expected >= 0"));
  }
  if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
  return absl::OkStatus();
}

struct HostDeleter {
  void operator()(void* memory) const { std::free(memory); }
};
using HostFloats = std::unique_ptr<float[], HostDeleter>;

// Allocates `count` uninitialised floats. Null if there is not enough memory.
inline HostFloats AllocateFloats(int64_t count) {
  if (count > kAllocationBytesMax / 4) return nullptr;
  return HostFloats(static_cast<float*>(AllocateHost(count * 4)));
}

}  // namespace capstan::kernels

#endif  // CAPSTAN_KERNELS_HOST_MEMORY_H_
