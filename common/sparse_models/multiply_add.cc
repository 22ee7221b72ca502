#include "common/sparse_models/multiply_add.h"

namespace capstan {
namespace {

// Takes four rows of B at a time, which saves loads and stores of C. It adds in the same order as
// one row at a time.
inline __attribute__((always_inline)) void Loop(int64_t m, int64_t n, int64_t k, StridedMatrix a,
                                                const float* b, float* c) {
  for (int64_t r = 0; r < m; ++r) {
    float* __restrict sums = c + r * n;
    const float* x = a.data + r * a.row;
    int64_t p = 0;
    for (; p + 4 <= k; p += 4) {
      const float x0 = x[p * a.column], x1 = x[(p + 1) * a.column];
      const float x2 = x[(p + 2) * a.column], x3 = x[(p + 3) * a.column];
      const float* b0 = b + p * n;
      const float* b1 = b0 + n;
      const float* b2 = b1 + n;
      const float* b3 = b2 + n;
      for (int64_t j = 0; j < n; ++j) {
        sums[j] = (((sums[j] + x0 * b0[j]) + x1 * b1[j]) + x2 * b2[j]) + x3 * b3[j];
      }
    }
    for (; p < k; ++p) {
      for (int64_t j = 0; j < n; ++j) sums[j] += x[p * a.column] * b[p * n + j];
    }
  }
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) void LoopAvx2(int64_t m, int64_t n, int64_t k, StridedMatrix a,
                                              const float* b, float* c) {
  Loop(m, n, k, a, b, c);
}
__attribute__((target("avx512f"))) void LoopAvx512(int64_t m, int64_t n, int64_t k, StridedMatrix a,
                                                   const float* b, float* c) {
  Loop(m, n, k, a, b, c);
}
#endif

}  // namespace

void MultiplyAddWith(InstructionSet set, int64_t m, int64_t n, int64_t k, StridedMatrix a,
                     const float* b, float* c) {
#if defined(__x86_64__)
  if (set == InstructionSet::kAvx512) return LoopAvx512(m, n, k, a, b, c);
  if (set == InstructionSet::kAvx2) return LoopAvx2(m, n, k, a, b, c);
#endif
  static_cast<void>(set);
  Loop(m, n, k, a, b, c);
}

void MultiplyAdd(int64_t m, int64_t n, int64_t k, StridedMatrix a, const float* b, float* c) {
  MultiplyAddWith(BestInstructionSet(), m, n, k, a, b, c);
}

}  // namespace capstan
