// MultiplyAdd: the product of two matrices, added to a third, with the same bits on every CPU.
//
// Each element is one sum in ascending order of what it is summed over, every product and every
// addition rounded to fp32 and none fused: it depends neither on the sizes of the matrices nor on
// the width of vectors. One source, compiled for the baseline CPU, AVX2 and AVX-512, and chosen at
// run time by a plain call, so that a test can run each form and sanitizers work.
// Thread safety: pure functions.
#ifndef CAPSTAN_COMMON_SPARSE_MODELS_MULTIPLY_ADD_H_
#define CAPSTAN_COMMON_SPARSE_MODELS_MULTIPLY_ADD_H_

#include <cstdint>

#include "common/types/instruction_set.h"

namespace capstan {

// A matrix whose element (r, c) is at data[r * row + c * column].
struct StridedMatrix {
  const float* data = nullptr;
  int64_t row = 0, column = 0;
};

// C[m, n] += A[m, k] B[k, n], B and C row by row. C overlaps neither A nor B.
void MultiplyAdd(int64_t m, int64_t n, int64_t k, StridedMatrix a, const float* b, float* c);

// The form for `set`. REQUIRES: IsSupported(set).
void MultiplyAddWith(InstructionSet set, int64_t m, int64_t n, int64_t k, StridedMatrix a,
                     const float* b, float* c);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_SPARSE_MODELS_MULTIPLY_ADD_H_
