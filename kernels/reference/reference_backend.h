// The reference backend: every op of op.h as naive loops. It is the specification that the other
// backends are compared with, and is itself checked by finite differences. Sums are accumulated in
// double, so its results are the correctly rounded ones up to the rounding of its inputs.
//
// What op.h leaves open is decided here:
//   * NaN passes through ReLU forward, fused or not, and wins a max-pool window (so that divergence
//     is seen). ReLU's gradient is 0 where its result is NaN.
//   * Of equal values in a max-pool window the first in row-major order wins; padding never wins.
//   * An empty batch gives zero weight gradients; batch norm's mean and variance of it are zero.
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
