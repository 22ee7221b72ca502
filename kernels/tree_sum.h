// TreeSum: adds arrays in the fixed order of a binary tree over them, so that the sum has the same
// bits on every run. Four arrays give (a0 + a1) + (a2 + a3). The server adds the slots of an
// iteration in such an order, too (server/core/consistency/slot_tree.h).
//
// Thread safety: a pure function.
#ifndef CAPSTAN_KERNELS_TREE_SUM_H_
#define CAPSTAN_KERNELS_TREE_SUM_H_

#include <cstddef>
#include <vector>

namespace capstan::kernels {

// Leaves the sum in arrays[0] and overwrites the other arrays. REQUIRES: all have the same size.
inline void TreeSum(std::vector<std::vector<float>>& arrays) {
  for (size_t step = 1; step < arrays.size(); step *= 2) {
    for (size_t i = 0; i + step < arrays.size(); i += 2 * step) {
      for (size_t k = 0; k < arrays[i].size(); ++k) arrays[i][k] += arrays[i + step][k];
    }
  }
}

}  // namespace capstan::kernels

#endif  // CAPSTAN_KERNELS_TREE_SUM_H_
