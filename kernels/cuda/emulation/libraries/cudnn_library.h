// CudnnLibrary: the real cuDNN, opened at run time. The emulated cuDNN (cudnn.cc) passes it every
// call but the execution of a plan. Since version 9.8 cuDNN needs no card: it plans for a card that
// is described to it.
//
// Thread safety: thread-safe.
#ifndef CAPSTAN_KERNELS_CUDA_EMULATION_LIBRARIES_CUDNN_LIBRARY_H_
#define CAPSTAN_KERNELS_CUDA_EMULATION_LIBRARIES_CUDNN_LIBRARY_H_

#include <cudnn.h>

#include <string>

#include "kernels/cuda/emulation/card.h"

namespace capstan::kernels::cuda::emulation {

// The library's functions; null if the library could not be opened.
struct CudnnLibrary {
  decltype(&::cudnnGetVersion) GetVersion = nullptr;
  decltype(&::cudnnGetErrorString) GetErrorString = nullptr;
  decltype(&::cudnnGetLastErrorString) GetLastErrorString = nullptr;
  decltype(&::cudnnBackendCreateDescriptor) Create = nullptr;
  decltype(&::cudnnBackendDestroyDescriptor) Destroy = nullptr;
  decltype(&::cudnnBackendFinalize) Finalize = nullptr;
  decltype(&::cudnnBackendSetAttribute) Set = nullptr;
  decltype(&::cudnnBackendGetAttribute) Get = nullptr;

  std::string failure;  // Why the library cannot be used; empty if it can.
};

// Opens the library at the first call, and never closes it.
const CudnnLibrary& Cudnn();

// Returns cuDNN's description of the card, a finalised CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, which
// lives as long as the process; null if cuDNN refuses it. REQUIRES: Cudnn().failure is empty;
// `card` is one of card.h's constants.
cudnnBackendDescriptor_t PropertiesOf(const Card& card);

}  // namespace capstan::kernels::cuda::emulation

#endif  // CAPSTAN_KERNELS_CUDA_EMULATION_LIBRARIES_CUDNN_LIBRARY_H_
