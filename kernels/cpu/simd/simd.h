// Simd: the table of the CPU backend's inner loops. They are compiled once per instruction set, and
// the backend chooses a table at run time.
//
// {tiles,loops,winograd}.inc hold the source; baseline.cc, avx2.cc and avx512.cc compile it with
// their own flags. These files include no standard-library templates: otherwise the linker might
// choose an inline function that is compiled for a newer processor than the one in use.
//
// Thread safety: tables of pure functions. All arrays are fp32, unaligned, NHWC where they are
// images.
#ifndef CAPSTAN_KERNELS_CPU_SIMD_SIMD_H_
#define CAPSTAN_KERNELS_CPU_SIMD_SIMD_H_

#include <stdint.h>

namespace capstan::kernels {

// A register tile of a matrix product: rows x columns of C, each the sum over (segment, step) of
//   a[row][segment * a_segment + step * a_step] * b[segment * b_segment + step * b_step + column].
// Tiles of any size add in this order.
struct TileArgs {
  const float* const* a = nullptr;  // One pointer per row.
  int64_t a_segment = 0, a_step = 1;
  const float* b = nullptr;
  int64_t b_segment = 0, b_step = 0;
  int64_t segments = 1, length = 0;
  float* const* c = nullptr;    // One pointer per row.
  int64_t last = 0;             // Columns in use of the last vector, >= 1; others are left alone.
  const float* bias = nullptr;  // One per column, added to each row; or null.
  bool accumulate = false;      // c += instead of c =. Rows may overlap: the tile adds in order.
  bool relu = false;            // c = max(c, 0), with NaN kept.
};
using TileFunction = void (*)(const TileArgs&);

inline constexpr int kTileRowsMax = 8;
inline constexpr int kTileVectorsMax = 4;

// The sizes of one image and of its windows.
struct PoolShape {
  int64_t h = 0, w = 0, c = 0, out_h = 0, out_w = 0, kernel = 0, stride = 0, padding = 0;
};

// The gradient dz of batch norm's output, with batch norm's input x. Without a and b, dz is dy. If
// a ReLU follows, a and b are set and dz is dy where x * a[c] + b[c] > 0, else 0.
struct NormGradient {
  const float* x = nullptr;
  const float* dy = nullptr;
  const float* a = nullptr;  // Null, like b, if there is no ReLU or dy is masked already.
  const float* b = nullptr;
};

// y = M x M^T for every channel, with one of the matrices of winograd.inc. `from` and `to` are
// squares of pointers to `channels` floats, row by row.
using SquareTransform = void (*)(int64_t channels, const float* const* from, float* const* to);

// The transforms of Winograd's convolution (winograd.h): between squares of points, whose side is
// that of a window plus 1, and squares of pixels and weights. Null if nothing uses one.
struct WinogradTransforms {
  SquareTransform image;            // Pixels under the windows of 2x2 outputs, to points.
  SquareTransform weights;          // A window to points.
  SquareTransform outputs;          // Points to 2x2 pixels.
  SquareTransform output_gradient;  // 2x2 pixels to points.
  SquareTransform weight_gradient;  // Points to a window.
  SquareTransform image_gradient;   // Points to pixels; adds to them.
};

struct Simd {
  const char* name;
  int width;        // Floats in a vector.
  bool has_half;    // True if tiles may end in half a vector.
  int vectors_max;  // Vectors in the widest tile; half a vector counts as one.
  // rows_max[v], v in [1, vectors_max]: rows of the tallest tile of v vectors.
  int rows_max[kTileVectorsMax + 1];
  // [rows][full vectors][half vectors]; null if there is no such tile.
  TileFunction tiles[kTileRowsMax + 1][kTileVectorsMax + 1][2];

  WinogradTransforms winograd3, winograd5;  // For windows of 3x3 and 5x5.
  // to[column * to_step + row] = from[row * from_step + column].
  // REQUIRES: 1 <= rows <= width.
  void (*transpose)(int64_t rows, int64_t columns, const float* from, int64_t from_step, float* to,
                    int64_t to_step);

  void (*relu)(int64_t count, const float* x, float* y);
  void (*relu_backward)(int64_t count, const float* y, const float* dy, float* dx);
  void (*add)(int64_t count, const float* a, const float* b, float* y);
  // Handles elements [begin, begin + count) of the whole array; x and y point at element `begin`.
  // REQUIRES: begin % 4 == 0.
  void (*dropout)(int64_t begin, int64_t count, uint64_t key, uint64_t threshold, float factor,
                  const float* x, float* y);
  // sums[c] += sum over positions of x[position][c]. Here and below, the order of a sum depends
  // only on the number of positions.
  void (*add_rows)(int64_t positions, int64_t channels, const float* x, float* sums);
  // sums[c] += sum over positions of (x - mean[c])^2.
  void (*add_squares)(int64_t positions, int64_t channels, const float* x, const float* mean,
                      float* sums);
  // sums[c] += sum over positions of dz (NormGradient), products[c] += sum of dz * (x - mean[c]).
  void (*add_gradients)(int64_t positions, int64_t channels, const NormGradient& gradient,
                        const float* mean, float* sums, float* products);
  // y = x * a[c] + b[c].
  void (*scale_shift)(int64_t positions, int64_t channels, const float* x, const float* a,
                      const float* b, float* y);
  // y = max(x * a[c] + b[c] + addend, 0), with NaN kept. `addend` may be null, and y may be addend.
  void (*scale_shift_relu)(int64_t positions, int64_t channels, const float* x, const float* a,
                           const float* b, const float* addend, float* y);
  // dx = dz * p[c] + x * q[c] + r[c].
  void (*combine)(int64_t positions, int64_t channels, const NormGradient& gradient, const float* p,
                  const float* q, const float* r, float* dx);

  // Each call handles one image.
  void (*max_pool_forward)(const PoolShape& s, const float* x, float* y, int32_t* index);
  void (*max_pool_backward)(const PoolShape& s, const float* dy, const int32_t* index, float* dx);
  void (*average_pool_forward)(const PoolShape& s, const float* x, float* y);
  void (*average_pool_backward)(const PoolShape& s, const float* dy, float* dx);
};

extern const Simd kSimdBaseline;
extern const Simd kSimdAvx2;    // AVX2 and FMA.
extern const Simd kSimdAvx512;  // AVX-512 F, VL, DQ, BW.

}  // namespace capstan::kernels

#endif  // CAPSTAN_KERNELS_CPU_SIMD_SIMD_H_
