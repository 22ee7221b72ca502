// What launchers and the code beside them share: element types and fault words. Plain C++.
//
// Thread safety: values.
#ifndef CAPSTAN_KERNELS_CUDA_KERNEL_TYPES_H_
#define CAPSTAN_KERNELS_CUDA_KERNEL_TYPES_H_

#include <cstdint>

namespace capstan::kernels::cuda {

// Type of the tensors of an op (cuda_backend.h); arithmetic is fp32 in all.
enum class Element { kFloat, kBf16, kFp16 };

// The first label and row number out of range: position << 32 | bits of the value, the least one
// wins; kNoFault if none.
inline constexpr uint64_t kNoFault = ~uint64_t{0};
struct Faults {
  unsigned long long label = kNoFault;
  unsigned long long row = kNoFault;
};

// Strips of columns that a kernel of sums may have more than one chunk of (columns.cuh).
inline constexpr int kStripsMax = 528;

// An image op's window; names as in op.h. All operands have fewer than 2^31 elements.
struct WindowShape {
  int64_t n = 0;
  int h = 1, w = 1, c = 1;
  int out_h = 1, out_w = 1;
  int kernel = 1, stride = 1, padding = 0;
};

}  // namespace capstan::kernels::cuda

#endif  // CAPSTAN_KERNELS_CUDA_KERNEL_TYPES_H_
