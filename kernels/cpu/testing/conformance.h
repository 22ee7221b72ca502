// Helpers that the conformance tests of the CPU backend share: they run an op on the reference and
// with each instruction set, and check how far the results differ.
//
// Tolerance. A sum of K products is off by at most K * 2^-24 times the sum of the products'
// magnitudes; errors of random sign grow with sqrt(K), so the bound used is
//   |cpu - reference| <= 2^-24 * (8 + 2 * sqrt(K)) * magnitude,
// where the magnitude of a sum of K terms of inputs in [-1, 1) is sqrt(K). Ops without sums must
// agree to a few roundings; ops that only move or select values must agree to the bit.
// Thread safety: pure functions, which fail the test that calls them.
#ifndef CAPSTAN_KERNELS_CPU_TESTING_CONFORMANCE_H_
#define CAPSTAN_KERNELS_CPU_TESTING_CONFORMANCE_H_

#include <memory>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/op.h"
#include "kernels/testing/op_cases.h"

namespace capstan::kernels {

inline constexpr InstructionSet kInstructionSets[] = {
    InstructionSet::kBaseline, InstructionSet::kAvx2, InstructionSet::kAvx512};

// Makes the reference, and the CPU backend with each instruction set.
std::vector<std::unique_ptr<Backend>> AllBackends();

bool SameBits(const std::vector<float>& a, const std::vector<float>& b);

// Runs the op twice and returns its outputs, which must have the same bits both times.
Operands RunTwice(Backend& backend, const OpDesc& desc, Operands& inputs,
                  const RunOptions& options = {});

// Checks that all outputs of the op agree within the tolerance.
void CheckSame(const OpDesc& desc, const Operands& expected, const Operands& actual);

// Compares `desc` on the reference with every instruction set that this processor has, with one
// thread and two. The thread count must not change a bit unless oneDNN computes the op.
void Conform(const OpDesc& desc, const RunOptions& options = {});

}  // namespace capstan::kernels

#endif  // CAPSTAN_KERNELS_CPU_TESTING_CONFORMANCE_H_
