// Tiling: cuts a matrix product into the register tiles of Simd.
//
// It cuts columns into panels, which are one to four vectors wide, and rows into nearly equal
// tiles. The cut never changes the order of a sum, so neither threads nor tile sizes change a
// result.
// Thread safety: values and pure functions.
#ifndef CAPSTAN_KERNELS_CPU_TILING_H_
#define CAPSTAN_KERNELS_CPU_TILING_H_

#include <cstdint>
#include <vector>

#include "kernels/cpu/simd/simd.h"

namespace capstan::kernels {

struct Panel {
  int64_t begin = 0;    // First column.
  int64_t columns = 0;  // Columns in use.
  int64_t padded = 0;   // Width in floats of the vectors that hold the columns.
  int full = 0;         // Number of full vectors.
  int half = 0;         // Number of half vectors, 0 or 1; it comes last.
  int64_t last = 0;     // Columns in use of the last vector.
};

std::vector<Panel> SplitColumns(const Simd& simd, int64_t columns);

// The sum of the panels' padded widths, in floats.
int64_t PaddedColumns(const std::vector<Panel>& panels);

// packed[k * panel.padded + column] = b[k * row_step + (panel.begin + column) * column_step] for
// k in [0, rows); 0 in the padding.
void PackPanel(const Panel& panel, int64_t rows, const float* b, int64_t row_step,
               int64_t column_step, float* packed);

// Runs the tiles of `rows` rows against one panel: c_of(row) (+)= a_of(row) * b. `args` has every
// field but a, c and last. Calls a_of and c_of once for each row, in order, and done(first row,
// rows) after each tile.
template <typename RowOfA, typename RowOfC, typename Done>
void RunTiles(const Simd& simd, const Panel& panel, TileArgs args, int64_t rows, const RowOfA& a_of,
              const RowOfC& c_of, const Done& done) {
  const int64_t rows_max = simd.rows_max[panel.full + panel.half];
  const float* a[kTileRowsMax];
  float* c[kTileRowsMax];
  args.a = a;
  args.c = c;
  args.last = panel.last;
  int64_t row = 0;
  for (int64_t tiles = (rows + rows_max - 1) / rows_max; tiles > 0; --tiles) {
    const int64_t height = (rows - row + tiles - 1) / tiles;
    for (int64_t i = 0; i < height; ++i) {
      a[i] = a_of(row + i);
      c[i] = c_of(row + i);
    }
    simd.tiles[height][panel.full][panel.half](args);
    done(row, height);
    row += height;
  }
}

template <typename RowOfA, typename RowOfC>
void RunTiles(const Simd& simd, const Panel& panel, const TileArgs& args, int64_t rows,
              const RowOfA& a_of, const RowOfC& c_of) {
  RunTiles(simd, panel, args, rows, a_of, c_of, [](int64_t, int64_t) {});
}

}  // namespace capstan::kernels

#endif  // CAPSTAN_KERNELS_CPU_TILING_H_
