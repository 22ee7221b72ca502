// What cuBLASLt allows and offers, and the host's product for it.
//
// Refused as NVIDIA documents it. What is not documented is refused as the library answers where
// it was asked without a device (handles, sizes of attributes), else by the stricter reading: an
// algorithm is only good for the types, the epilogue and the alignments it was asked for.
//
// Two epilogues are refused, so that the backend's own kernels have their turn:
//   BIAS with a bias that is not of D's type: documented so. The backend's biases are fp32, so in
//     bf16 and fp16 it adds them itself.
//   BGRADB of fp32 factors without TF32, as if it were made for tensor cores alone; nothing is
//     documented. The backend's fp32 sums its bias gradients itself.
//
// Thread safety: pure functions.
#ifndef CAPSTAN_KERNELS_CUDA_EMULATION_CUBLASLT_RULES_H_
#define CAPSTAN_KERNELS_CUDA_EMULATION_CUBLASLT_RULES_H_

#include <cublasLt.h>
#include <library_types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/cuda/emulation/host_product.h"

namespace capstan::kernels::cuda::emulation {

// What the words of cublasLt.h's opaque types hold.

struct MatmulOperation {
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  cudaDataType scale = CUDA_R_32F;
  int32_t transpose_a = CUBLAS_OP_N, transpose_b = CUBLAS_OP_N;
  uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  int32_t bias_type = -1;  // -1: D's.
  float* bias = nullptr;
};

struct MatmulLayout {
  cudaDataType type = CUDA_R_32F;
  uint64_t rows = 0, columns = 0;
  int64_t ld = 0;
};

struct MatmulPreference {
  uint64_t workspace_bytes_max = 0;
  uint32_t reduction_schemes = CUBLASLT_REDUCTION_SCHEME_MASK;
  std::array<uint32_t, 4> alignments = {256, 256, 256, 256};  // Of A, B, C, D.
};

struct MatmulAlgorithm {
  uint64_t number = 0;  // kFirstAlgorithm and on.
  uint64_t workspace_bytes = 0;
  uint64_t purpose = 0;  // PurposeOf() what it was asked for.
  std::array<uint32_t, 4> alignments{};
  uint64_t bias_alignment = 0;
};

struct MatmulProblem {
  MatmulOperation operation;
  MatmulLayout a, b, c, d;
};

struct MatmulPointers {
  const void* a;
  const void* b;
  const void* c;
  void* d;
  void* workspace;
  size_t workspace_bytes;
};

// OK if such a product can be asked for.
// Errors: CUBLAS_STATUS_INVALID_VALUE  shapes do not go together.
//         CUBLAS_STATUS_NOT_SUPPORTED  types, or the epilogue for them.
cublasStatus_t CheckProblem(const MatmulProblem& problem);

// Best first, into results[count_max]: one with scratch, two without, and one whose state is an
// error. How many that are. REQUIRES: CheckProblem is OK.
int OfferAlgorithms(const MatmulProblem& problem, const MatmulPreference& preference, int count_max,
                    cublasLtMatmulHeuristicResult_t* results);

// OK if the algorithm can be run on these.
// Errors: CUBLAS_STATUS_INVALID_VALUE  a pointer is null, the workspace too small or not aligned.
//         CUBLAS_STATUS_NOT_SUPPORTED  it was offered for other types or alignments, or never.
cublasStatus_t CheckRun(const MatmulProblem& problem, const MatmulPointers& pointers,
                        const MatmulAlgorithm& algorithm);

// With alpha 1 and beta 0. REQUIRES: CheckProblem and CheckRun are OK.
HostProduct ProductOf(const MatmulProblem& problem, const MatmulPointers& pointers,
                      const MatmulAlgorithm& algorithm);

template <typename Words, typename T>
void PutWords(const T& value, Words* words) {
  static_assert(sizeof(T) <= sizeof(words->data) && std::is_trivially_copyable_v<T>);
  std::memset(words->data, 0, sizeof(words->data));
  std::memcpy(words->data, &value, sizeof(T));
}

template <typename T, typename Words>
T GetWords(const Words* words) {
  T value;
  std::memcpy(&value, words->data, sizeof(T));
  return value;
}

}  // namespace capstan::kernels::cuda::emulation

#endif  // CAPSTAN_KERNELS_CUDA_EMULATION_CUBLASLT_RULES_H_
