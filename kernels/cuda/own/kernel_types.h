// Types that kernel launchers and their callers share: element types, fault words, window shapes.
// Plain C++.
//
// Thread safety: values.
#ifndef CAPSTAN_KERNELS_CUDA_OWN_KERNEL_TYPES_H_
#define CAPSTAN_KERNELS_CUDA_OWN_KERNEL_TYPES_H_

#include <cstdint>

namespace capstan::kernels::cuda {

// The type of an op's tensors (cuda_backend.h). Kernels compute in fp32 with all of them.
enum class Element { kFloat, kBf16, kFp16 };

// The first label and the first row number out of range, as position << 32 | bits of the value: the
// kernels keep the smallest. kNoFault if there is none.
inline constexpr uint64_t kNoFault = ~uint64_t{0};
struct Faults {
  unsigned long long label = kNoFault;
  unsigned long long row = kNoFault;
};

// The most strips of columns that a kernel of sums may cut into several chunks (columns.cuh).
inline constexpr int kStripsMax = 528;

// The sizes of an image op; op.h explains the names. All operands have fewer than 2^31 elements.
struct WindowShape {
  int64_t n = 0;
  int h = 1, w = 1, c = 1;
  int out_h = 1, out_w = 1;
  int kernel = 1, stride = 1, padding = 0;
};

}  // namespace capstan::kernels::cuda

#endif  // CAPSTAN_KERNELS_CUDA_OWN_KERNEL_TYPES_H_
