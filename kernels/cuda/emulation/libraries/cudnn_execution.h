// RunOnDevice: runs a cuDNN plan on its operands, which CheckOperands checks first.
//
// Thread safety: pure functions.
#ifndef CAPSTAN_KERNELS_CUDA_EMULATION_LIBRARIES_CUDNN_EXECUTION_H_
#define CAPSTAN_KERNELS_CUDA_EMULATION_LIBRARIES_CUDNN_EXECUTION_H_

#include <cuda_runtime_api.h>
#include <cudnn.h>

#include <cstdint>
#include <map>
#include <string>

#include "kernels/cuda/emulation/libraries/cudnn_program.h"

namespace capstan::kernels::cuda::emulation {

struct Operands {
  std::map<int64_t, void*> pointers;  // Tensor id to address.
  void* workspace = nullptr;
  int device = 0;  // The device whose memory must hold all of them.
};

// Checks the operands of a plan. Errors, which `wrong` describes: a tensor or the workspace is
// missing; a tensor is not aligned as its descriptor says; memory that the plan writes, including
// the workspace, overlaps with other operands.
cudnnStatus_t CheckOperands(const CudnnProgram& program, const Operands& operands,
                            std::string& wrong);

// Runs the plan now. REQUIRES: CheckOperands succeeded.
// Errors: cudaErrorIllegalAddress  an operand is not in the device's memory; stderr names it.
cudaError_t RunOnDevice(const CudnnProgram& program, const Operands& operands);

}  // namespace capstan::kernels::cuda::emulation

#endif  // CAPSTAN_KERNELS_CUDA_EMULATION_LIBRARIES_CUDNN_EXECUTION_H_
