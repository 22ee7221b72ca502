// GradientChecks: compare backward ops with central differences of their forward ops, on any
// backend.
//
// For L = sum(g * y) with fixed g, a check measures the slope of L along one input element as
// (L(x + h) - L(x - h)) / 2h with h = 2^-7. Its error is the truncation, h^2 / 6 * |L'''| = 1e-5
// |L'''|, and the rounding of the fp32 outputs: e * sqrt(outputs) / h if each output is off by e.
// There are at most 80 outputs. A tolerance of 1e-3, relative to the largest slope if that is above
// 1, is therefore safe for e = 2^-22 (some roundings of numbers of size 1), and far below the
// effect of any mistake in a formula.
// Thread safety: as Catch2's assertions, which the checks use.
#ifndef CAPSTAN_KERNELS_TESTING_GRADIENT_CHECKS_H_
#define CAPSTAN_KERNELS_TESTING_GRADIENT_CHECKS_H_

#include <functional>

#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kernels/op.h"
#include "kernels/testing/op_cases.h"

namespace capstan::kernels {

inline constexpr double kGradientTolerance = 1e-3;

// Runs an op on the backend under test and returns its outputs. The backend computes in fp32.
using RunOp =
    std::function<Operands(const OpDesc& desc, Operands& inputs, const RunOptions& options)>;

// Checks all backward ops of one kind of layer, element by element.
struct GradientCheck {
  const char* name = "";
  void (*check)(const RunOp& run, double tolerance) = nullptr;
  bool host_only = false;  // No device has these ops (IsHostOnly).
};
absl::Span<const GradientCheck> GradientChecks();

}  // namespace capstan::kernels

#endif  // CAPSTAN_KERNELS_TESTING_GRADIENT_CHECKS_H_
