// The reference backend: every op of op.h as naive loops. It is the specification with which tests
// compare the other backends; finite differences check it. It accumulates sums in double, so its
// results are correctly rounded, up to the rounding of its inputs.
//
// It decides what op.h leaves open:
//   * NaN passes through ReLU forward, fused or not, and wins a max-pool window, so that divergence
//     is visible. ReLU's gradient is 0 where its result is NaN.
//   * The first of equal values in a max-pool window wins, in row-major order; padding never wins.
//   * An empty batch gives weight gradients of zero, and a batch norm mean and variance of zero.
// Thread safety: as Backend.
#ifndef CAPSTAN_KERNELS_REFERENCE_REFERENCE_BACKEND_H_
#define CAPSTAN_KERNELS_REFERENCE_REFERENCE_BACKEND_H_

#include <memory>

#include "kernels/backend.h"

namespace capstan::kernels {

// Supports every OpKind, on one thread.
std::unique_ptr<Backend> MakeReferenceBackend();

}  // namespace capstan::kernels

#endif  // CAPSTAN_KERNELS_REFERENCE_REFERENCE_BACKEND_H_
