#include "kernels/cpu/tiling.h"

#include <algorithm>

namespace capstan::kernels {

std::vector<Panel> SplitColumns(const Simd& simd, int64_t columns) {
  const int64_t width = simd.width;
  std::vector<Panel> panels;
  for (int64_t begin = 0; begin < columns;) {
    Panel panel;
    panel.begin = begin;
    panel.columns = std::min(columns - begin, simd.vectors_max * width);
    panel.full = static_cast<int>(panel.columns / width);
    panel.last = panel.columns % width;
    if (panel.last == 0) {
      panel.last = width;
    } else if (simd.has_half && panel.last <= width / 2) {
      panel.half = 1;
    } else {
      ++panel.full;
    }
    panel.padded = panel.full * width + panel.half * width / 2;
    panels.push_back(panel);
    begin += panel.columns;
  }
  return panels;
}

int64_t PaddedColumns(const std::vector<Panel>& panels) {
  int64_t columns = 0;
  for (const Panel& panel : panels) columns += panel.padded;
  return columns;
}

void PackPanel(const Panel& panel, int64_t rows, const float* b, int64_t row_step,
               int64_t column_step, float* packed) {
  for (int64_t k = 0; k < rows; ++k) {
    const float* from = b + k * row_step + panel.begin * column_step;
    float* to = packed + k * panel.padded;
    for (int64_t j = 0; j < panel.columns; ++j) to[j] = from[j * column_step];
    for (int64_t j = panel.columns; j < panel.padded; ++j) to[j] = 0.0f;
  }
}

}  // namespace capstan::kernels
