// The inner loops for any x86-64 processor (SSE2); see simd.h.
#include "kernels/cpu/simd.h"

namespace capstan::kernels {
namespace {
// Each builds on the ones before it.
// clang-format off
#include "kernels/cpu/simd_vector.inc"
#include "kernels/cpu/simd_tiles.inc"
#include "kernels/cpu/simd_loops.inc"
#include "kernels/cpu/simd_winograd.inc"
#include "kernels/cpu/simd_table.inc"
// clang-format on
}  // namespace

CAPSTAN_SIMD_TABLE(kSimdBaseline, "baseline");

}  // namespace capstan::kernels
