// The CPU backend: own vectorised loops for AVX-512, AVX2 or any x86-64, and oneDNN where it is
// faster, behind the Backend interface.
//
// Which implementation an op gets is a rule of its descriptor and of the instruction set, never of
// a timing. So on one kind of processor the same thread count gives the same bits on every run; ops
// that do not use oneDNN give them with any thread count. Scratch belongs to the plans: Run
// allocates no memory of its own.
// Thread safety: as Backend. Backends on different threads are independent.
#ifndef CAPSTAN_KERNELS_CPU_CPU_BACKEND_H_
#define CAPSTAN_KERNELS_CPU_CPU_BACKEND_H_

#include <memory>

#include "kernels/backend.h"

namespace capstan::kernels {

enum class InstructionSet { kBaseline, kAvx2, kAvx512 };

struct CpuOptions {
  int threads = 1;  // OpenMP threads an op may use; taken as the nearest in [1, 1024].
  // The newest instruction set to use; what the processor lacks is not used. Any limit below the
  // default also leaves oneDNN out (it chooses for itself), so that a mixed set of machines that
  // all reach the limit compute the same bits.
  InstructionSet instruction_set_max = InstructionSet::kAvx512;
};

// Supports every OpKind. Its Name is "cpu".
std::unique_ptr<Backend> MakeCpuBackend(const CpuOptions& options = {});

// The newest one that this processor and operating system support.
InstructionSet BestInstructionSet();

}  // namespace capstan::kernels

#endif  // CAPSTAN_KERNELS_CPU_CPU_BACKEND_H_
