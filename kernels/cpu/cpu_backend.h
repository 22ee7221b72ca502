// The CPU backend: oneDNN and own vectorised loops, behind the Backend interface.
//
// Which implementation an op gets is a rule of its descriptor and of the processor's instruction set,
// never of a timing; so on one machine the same thread count gives the same bits on every run.
// Scratch belongs to the plans: Run allocates nothing.
// Thread safety: as Backend. Backends on different threads are independent.
#ifndef CAPSTAN_KERNELS_CPU_CPU_BACKEND_H_
#define CAPSTAN_KERNELS_CPU_CPU_BACKEND_H_

#include <memory>

#include "kernels/backend.h"

namespace capstan::kernels {

struct CpuOptions {
  int threads = 1;  // OpenMP threads an op may use; values below 1 count as 1.
};

// Supports every OpKind.
std::unique_ptr<Backend> MakeCpuBackend(const CpuOptions& options = {});

}  // namespace capstan::kernels

#endif  // CAPSTAN_KERNELS_CPU_CPU_BACKEND_H_
