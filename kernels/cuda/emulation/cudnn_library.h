// The real cuDNN, opened at run time: the emulated one asks it for everything but to run a plan.
// Since 9.8 it plans for a card that is described to it, and needs none.
//
// Thread safety: thread-safe.
#ifndef CAPSTAN_KERNELS_CUDA_EMULATION_CUDNN_LIBRARY_H_
#define CAPSTAN_KERNELS_CUDA_EMULATION_CUDNN_LIBRARY_H_

#include <cudnn.h>

#include <string>

#include "kernels/cuda/emulation/card.h"

namespace capstan::kernels::cuda::emulation {

// Its functions; null where it could not be opened.
struct CudnnLibrary {
  decltype(&::cudnnGetVersion) GetVersion = nullptr;
  decltype(&::cudnnGetErrorString) GetErrorString = nullptr;
  decltype(&::cudnnGetLastErrorString) GetLastErrorString = nullptr;
  decltype(&::cudnnBackendCreateDescriptor) Create = nullptr;
  decltype(&::cudnnBackendDestroyDescriptor) Destroy = nullptr;
  decltype(&::cudnnBackendFinalize) Finalize = nullptr;
  decltype(&::cudnnBackendSetAttribute) Set = nullptr;
  decltype(&::cudnnBackendGetAttribute) Get = nullptr;

  std::string failure;  // Why it is of no use; empty: it is.
};

// Opened at the first call, and never closed.
const CudnnLibrary& Cudnn();

// The card as cuDNN describes one: a finalised CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, which lives as
// long as the process; null where cuDNN refuses it. REQUIRES: Cudnn().failure is empty; `card` is
// one of card.h's constants.
cudnnBackendDescriptor_t PropertiesOf(const Card& card);

}  // namespace capstan::kernels::cuda::emulation

#endif  // CAPSTAN_KERNELS_CUDA_EMULATION_CUDNN_LIBRARY_H_
