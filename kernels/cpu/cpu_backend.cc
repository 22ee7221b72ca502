#include "kernels/cpu/cpu_backend.h"

#include "kernels/reference/reference_backend.h"

namespace capstan::kernels {

std::unique_ptr<Backend> MakeCpuBackend(const CpuOptions&) { return MakeReferenceBackend(); }

}  // namespace capstan::kernels
