// The CPU backend: a Backend with its own vectorised loops for AVX-512, AVX2 or any x86-64, and
// with oneDNN where that is faster.
//
// The descriptor of an op and the instruction set decide which implementation runs it; timings
// never do. On one kind of processor the same thread count therefore gives the same bits on every
// run; ops that do not use oneDNN give the same bits with any thread count. The plans own the
// scratch: Run allocates no memory of its own.
// Thread safety: as Backend. Backends on different threads are independent.
#ifndef CAPSTAN_KERNELS_CPU_CPU_BACKEND_H_
#define CAPSTAN_KERNELS_CPU_CPU_BACKEND_H_

#include <memory>

#include "kernels/backend.h"

namespace capstan::kernels {

enum class InstructionSet { kBaseline, kAvx2, kAvx512 };

struct CpuOptions {
  int threads = 1;  // OpenMP threads that an op may use; clamped to [1, 1024].
  // The newest instruction set to use, if the processor has it. Any limit below the default also
  // excludes oneDNN, which chooses its instructions itself; then different machines that all reach
  // the limit compute the same bits.
  InstructionSet instruction_set_max = InstructionSet::kAvx512;
};

// Supports every OpKind. Its Name is "cpu".
std::unique_ptr<Backend> MakeCpuBackend(const CpuOptions& options = {});

// The newest instruction set that this processor and operating system support.
InstructionSet BestInstructionSet();

}  // namespace capstan::kernels

#endif  // CAPSTAN_KERNELS_CPU_CPU_BACKEND_H_
