// The inner loops for AVX2 with FMA; see simd.h.
#include <immintrin.h>

#include "kernels/cpu/simd/simd.h"

namespace capstan::kernels {
namespace {
// Each builds on the ones before it.
// clang-format off
#include "kernels/cpu/simd/vector.inc"
#include "kernels/cpu/simd/tiles.inc"
#include "kernels/cpu/simd/loops.inc"
#include "kernels/cpu/simd/winograd.inc"
#include "kernels/cpu/simd/table.inc"
// clang-format on
}  // namespace

CAPSTAN_SIMD_TABLE(kSimdAvx2, "avx2");

}  // namespace capstan::kernels
