// TreeSum: the sum of arrays in a fixed order, that of a binary tree over them: with four,
// (a0 + a1) + (a2 + a3). An iteration's slots are added up like this, too.
//
// Thread safety: a pure function.
#ifndef CAPSTAN_KERNELS_TREE_SUM_H_
#define CAPSTAN_KERNELS_TREE_SUM_H_

#include <cstddef>
#include <vector>

namespace capstan::kernels {

// Leaves the sum in arrays[0]; the others are lost. REQUIRES: all are of one size.
inline void TreeSum(std::vector<std::vector<float>>& arrays) {
  for (size_t step = 1; step < arrays.size(); step *= 2) {
    for (size_t i = 0; i + step < arrays.size(); i += 2 * step) {
      for (size_t k = 0; k < arrays[i].size(); ++k) arrays[i][k] += arrays[i + step][k];
    }
  }
}

}  // namespace capstan::kernels

#endif  // CAPSTAN_KERNELS_TREE_SUM_H_
