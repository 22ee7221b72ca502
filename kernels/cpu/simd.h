// Simd: the inner loops of the CPU backend, compiled once per instruction set and chosen at run
// time.
//
// simd_tiles.inc and simd_loops.inc hold the source; simd_baseline.cc, simd_avx2.cc and
// simd_avx512.cc compile it with their own flags. Those files see no standard-library templates, so
// that no inline function compiled for a newer processor can be picked by the linker for an older
// one.
//
// Thread safety: tables of pure functions. All arrays are fp32, unaligned, NHWC where they are
// images.
#ifndef CAPSTAN_KERNELS_CPU_SIMD_H_
#define CAPSTAN_KERNELS_CPU_SIMD_H_

#include <stdint.h>

namespace capstan::kernels {

// A register tile of a matrix product: rows x columns of C, each the sum over (segment, step) of
//   a[row][segment * a_segment + step * a_step] * b[segment * b_segment + step * b_step + column].
// The sum is taken in that order, whatever the tile's size.
struct TileArgs {
  const float* const* a = nullptr;  // One pointer per row.
  int64_t a_segment = 0, a_step = 1;
  const float* b = nullptr;
  int64_t b_segment = 0, b_step = 0;
  int64_t segments = 1, length = 0;
  float* const* c = nullptr;    // One pointer per row.
  int64_t last = 0;             // Columns in use of the last vector, >= 1; others are not touched.
  const float* bias = nullptr;  // One per column, added to each row; or null.
  bool accumulate = false;      // c += instead of c =. Rows may overlap: they are added in order.
  bool relu = false;            // c = max(c, 0), with NaN kept.
};
using TileFunction = void (*)(const TileArgs&);

inline constexpr int kTileRowsMax = 8;
inline constexpr int kTileVectorsMax = 4;

// The windows of one image.
struct PoolShape {
  int64_t h = 0, w = 0, c = 0, out_h = 0, out_w = 0, kernel = 0, stride = 0, padding = 0;
};

// The gradient dz of what batch norm gave, with the x that it was given: dy, or with a and b, for a
// ReLU that followed, dy where x * a[c] + b[c] > 0 and otherwise 0.
struct NormGradient {
  const float* x = nullptr;
  const float* dy = nullptr;
  const float* a = nullptr;  // Null without ReLU or where dy is masked already, and b then, too.
  const float* b = nullptr;
};

struct Simd {
  const char* name;
  int width;        // Floats in a vector.
  bool has_half;    // Whether tiles may end in half a vector.
  int vectors_max;  // Vectors of a tile, the half one included.
  // Rows of the tallest tile of so many vectors, [1, vectors_max].
  int rows_max[kTileVectorsMax + 1];
  // [rows][full vectors][half vectors]; null where there is no such tile.
  TileFunction tiles[kTileRowsMax + 1][kTileVectorsMax + 1][2];

  void (*relu)(int64_t count, const float* x, float* y);
  void (*relu_backward)(int64_t count, const float* y, const float* dy, float* dx);
  void (*add)(int64_t count, const float* a, const float* b, float* y);
  // Elements [begin, begin + count) of a stream; x and y point at the first.
  // REQUIRES: begin % 4 == 0.
  void (*dropout)(int64_t begin, int64_t count, uint64_t key, uint64_t threshold, float factor,
                  const float* x, float* y);
  // sums[c] += sum over positions of x[position][c]; here and below the order of a sum depends on
  // the number of positions alone.
  void (*add_rows)(int64_t positions, int64_t channels, const float* x, float* sums);
  // sums[c] += sum over positions of (x - mean[c])^2.
  void (*add_squares)(int64_t positions, int64_t channels, const float* x, const float* mean,
                      float* sums);
  // sums[c] += sum over positions of dz (NormGradient), products[c] += that of dz * (x - mean[c]).
  void (*add_gradients)(int64_t positions, int64_t channels, const NormGradient& gradient,
                        const float* mean, float* sums, float* products);
  // y = x * a[c] + b[c].
  void (*scale_shift)(int64_t positions, int64_t channels, const float* x, const float* a,
                      const float* b, float* y);
  // y = max(x * a[c] + b[c] + addend, 0), with NaN kept. A null addend means none; y may be addend.
  void (*scale_shift_relu)(int64_t positions, int64_t channels, const float* x, const float* a,
                           const float* b, const float* addend, float* y);
  // dx = dz * p[c] + x * q[c] + r[c].
  void (*combine)(int64_t positions, int64_t channels, const NormGradient& gradient, const float* p,
                  const float* q, const float* r, float* dx);

  // One image each.
  void (*max_pool_forward)(const PoolShape& s, const float* x, float* y, int32_t* index);
  void (*max_pool_backward)(const PoolShape& s, const float* dy, const int32_t* index, float* dx);
  void (*average_pool_forward)(const PoolShape& s, const float* x, float* y);
  void (*average_pool_backward)(const PoolShape& s, const float* dy, float* dx);
};

extern const Simd kSimdBaseline;
extern const Simd kSimdAvx2;    // AVX2 and FMA.
extern const Simd kSimdAvx512;  // AVX-512 F, VL, DQ, BW.

}  // namespace capstan::kernels

#endif  // CAPSTAN_KERNELS_CPU_SIMD_H_
