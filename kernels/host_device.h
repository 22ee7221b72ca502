// CAPSTAN_HOST_DEVICE: marks a function that hosts and kernels call, for g++ and nvcc.
#ifndef CAPSTAN_KERNELS_HOST_DEVICE_H_
#define CAPSTAN_KERNELS_HOST_DEVICE_H_

#if defined(__CUDACC__)
#define CAPSTAN_HOST_DEVICE __host__ __device__ __forceinline__
#else
// A function that is inlined into one for AVX-512 is compiled for AVX-512.
#define CAPSTAN_HOST_DEVICE __attribute__((always_inline)) inline
#endif

#endif  // CAPSTAN_KERNELS_HOST_DEVICE_H_
