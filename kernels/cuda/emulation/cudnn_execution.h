// What a cuDNN plan is run on: checks of its operands, and the run itself.
//
// Thread safety: pure functions.
#ifndef CAPSTAN_KERNELS_CUDA_EMULATION_CUDNN_EXECUTION_H_
#define CAPSTAN_KERNELS_CUDA_EMULATION_CUDNN_EXECUTION_H_

#include <cuda_runtime_api.h>
#include <cudnn.h>

#include <cstdint>
#include <map>
#include <string>

#include "kernels/cuda/emulation/cudnn_program.h"

namespace capstan::kernels::cuda::emulation {

struct Operands {
  std::map<int64_t, void*> pointers;  // By the tensors' ids.
  void* workspace = nullptr;
  int device = 0;  // Whose memory all of it has to be.
};

// Errors, with `wrong` in words: a tensor or the workspace is missing; a tensor is not aligned as
// was promised; what the plan writes, the workspace too, overlaps with something.
cudnnStatus_t CheckOperands(const CudnnProgram& program, const Operands& operands,
                            std::string& wrong);

// Runs it now. REQUIRES: CheckOperands is content.
// Errors: cudaErrorIllegalAddress  an operand is not in the device's memory; says which on stderr.
cudaError_t RunOnDevice(const CudnnProgram& program, const Operands& operands);

}  // namespace capstan::kernels::cuda::emulation

#endif  // CAPSTAN_KERNELS_CUDA_EMULATION_CUDNN_EXECUTION_H_
