// cuBLASLt on the host, as far as the backend calls it. What it knows is in cublaslt_rules.h.
#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <bit>
#include <cstdint>
#include <cstring>
#include <new>

#include "kernels/cuda/emulation/cublaslt_rules.h"
#include "kernels/cuda/emulation/host_product.h"
#include "kernels/cuda/emulation/runtime.h"

// A handle: good for the device that was current when it was made.
struct cublasLtContext {
  int device = 0;
};

namespace capstan::kernels::cuda::emulation {
namespace {

template <typename Words, typename T>
cublasStatus_t Create(const T& value, Words** made) {
  if (made == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  *made = new (std::nothrow) Words;
  if (*made == nullptr) return CUBLAS_STATUS_ALLOC_FAILED;
  PutWords(value, *made);
  return CUBLAS_STATUS_SUCCESS;
}

// One attribute, of exactly its size.
template <typename T>
cublasStatus_t Take(const void* buffer, size_t bytes, T* field) {
  if (buffer == nullptr || bytes != sizeof(T)) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(field, buffer, sizeof(T));
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t Set(cublasLtMatmulDescAttributes_t name, const void* buffer, size_t bytes,
                   MatmulOperation* operation) {
  switch (name) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return Take(buffer, bytes, &operation->transpose_a);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return Take(buffer, bytes, &operation->transpose_b);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return Take(buffer, bytes, &operation->epilogue);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return Take(buffer, bytes, &operation->bias);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
      return Take(buffer, bytes, &operation->bias_type);
    default:
      return CUBLAS_STATUS_INVALID_VALUE;  // Of an attribute that is not emulated, too.
  }
}

cublasStatus_t Set(cublasLtMatmulPreferenceAttributes_t name, const void* buffer, size_t bytes,
                   MatmulPreference* preference) {
  switch (name) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      return Take(buffer, bytes, &preference->workspace_bytes_max);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
      return Take(buffer, bytes, &preference->reduction_schemes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
      return Take(buffer, bytes, &preference->alignments[0]);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
      return Take(buffer, bytes, &preference->alignments[1]);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
      return Take(buffer, bytes, &preference->alignments[2]);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
      return Take(buffer, bytes, &preference->alignments[3]);
    default:
      return CUBLAS_STATUS_INVALID_VALUE;
  }
}

struct StatusText {
  cublasStatus_t status;
  const char* name;
  const char* words;
};

constexpr StatusText kStatusTexts[] = {
    {CUBLAS_STATUS_SUCCESS, "CUBLAS_STATUS_SUCCESS", "success"},
    {CUBLAS_STATUS_NOT_INITIALIZED, "CUBLAS_STATUS_NOT_INITIALIZED",
     "the library was not initialized"},
    {CUBLAS_STATUS_ALLOC_FAILED, "CUBLAS_STATUS_ALLOC_FAILED", "the resource allocation failed"},
    {CUBLAS_STATUS_INVALID_VALUE, "CUBLAS_STATUS_INVALID_VALUE",
     "an unsupported value or parameter was passed to the function"},
    {CUBLAS_STATUS_EXECUTION_FAILED, "CUBLAS_STATUS_EXECUTION_FAILED",
     "the function failed to launch on the GPU"},
    {CUBLAS_STATUS_NOT_SUPPORTED, "CUBLAS_STATUS_NOT_SUPPORTED",
     "the requested functionality is not supported"},
};

const StatusText& TextOf(cublasStatus_t status) {
  static constexpr StatusText kOther = {CUBLAS_STATUS_INTERNAL_ERROR, "unrecognized status",
                                        "unrecognized status"};
  for (const StatusText& text : kStatusTexts) {
    if (text.status == status) return text;
  }
  return kOther;
}

}  // namespace
}  // namespace capstan::kernels::cuda::emulation

// ---------------------------------------------------------------- cublasLt.h

namespace emulation = capstan::kernels::cuda::emulation;

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  if (handle == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess) return CUBLAS_STATUS_NOT_INITIALIZED;
  *handle = new (std::nothrow) cublasLtContext{device};
  return *handle == nullptr ? CUBLAS_STATUS_ALLOC_FAILED : CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  if (handle == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}

const char* cublasLtGetStatusName(cublasStatus_t status) { return emulation::TextOf(status).name; }

const char* cublasLtGetStatusString(cublasStatus_t status) {
  return emulation::TextOf(status).words;
}

size_t cublasLtGetVersion() { return CUBLAS_VERSION; }

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* made, cudaDataType type,
                                          uint64_t rows, uint64_t columns, int64_t ld) {
  return emulation::Create(emulation::MatmulLayout{type, rows, columns, ld}, made);
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete layout;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* made, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  return emulation::Create(emulation::MatmulOperation{.compute = compute, .scale = scale}, made);
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t descriptor) {
  delete descriptor;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t descriptor,
                                              cublasLtMatmulDescAttributes_t name,
                                              const void* buffer, size_t bytes) {
  if (descriptor == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  auto operation = emulation::GetWords<emulation::MatmulOperation>(descriptor);
  const cublasStatus_t status = emulation::Set(name, buffer, bytes, &operation);
  emulation::PutWords(operation, descriptor);
  return status;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* made) {
  return emulation::Create(emulation::MatmulPreference{}, made);
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  delete preference;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t words,
                                                    cublasLtMatmulPreferenceAttributes_t name,
                                                    const void* buffer, size_t bytes) {
  if (words == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  auto preference = emulation::GetWords<emulation::MatmulPreference>(words);
  const cublasStatus_t status = emulation::Set(name, buffer, bytes, &preference);
  emulation::PutWords(preference, words);
  return status;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle,
                                              cublasLtMatmulDesc_t descriptor,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int count_max,
                                              cublasLtMatmulHeuristicResult_t results[],
                                              int* count) {
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (descriptor == nullptr || a == nullptr || b == nullptr || c == nullptr || d == nullptr ||
      preference == nullptr || count_max <= 0 || results == nullptr || count == nullptr) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  *count = 0;
  using emulation::GetWords;
  const emulation::MatmulProblem problem = {
      GetWords<emulation::MatmulOperation>(descriptor), GetWords<emulation::MatmulLayout>(a),
      GetWords<emulation::MatmulLayout>(b), GetWords<emulation::MatmulLayout>(c),
      GetWords<emulation::MatmulLayout>(d)};
  const auto preferred = GetWords<emulation::MatmulPreference>(preference);
  for (const uint32_t alignment : preferred.alignments) {
    if (!std::has_single_bit(alignment)) return CUBLAS_STATUS_INVALID_VALUE;
  }
  const cublasStatus_t status = emulation::CheckProblem(problem);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  *count = emulation::OfferAlgorithms(problem, preferred, count_max, results);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t descriptor,
                              const void* alpha, const void* a, cublasLtMatrixLayout_t a_layout,
                              const void* b, cublasLtMatrixLayout_t b_layout, const void* beta,
                              const void* c, cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t* algo,
                              void* workspace, size_t workspace_bytes, cudaStream_t stream) {
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (descriptor == nullptr || alpha == nullptr || a_layout == nullptr || b_layout == nullptr ||
      beta == nullptr || c_layout == nullptr || d_layout == nullptr || algo == nullptr) {
    return CUBLAS_STATUS_INVALID_VALUE;  // Without an algorithm the library would ask for one.
  }
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess || device != handle->device) {
    return CUBLAS_STATUS_EXECUTION_FAILED;
  }
  using emulation::GetWords;
  const emulation::MatmulProblem problem = {
      GetWords<emulation::MatmulOperation>(descriptor), GetWords<emulation::MatmulLayout>(a_layout),
      GetWords<emulation::MatmulLayout>(b_layout), GetWords<emulation::MatmulLayout>(c_layout),
      GetWords<emulation::MatmulLayout>(d_layout)};
  cublasStatus_t status = emulation::CheckProblem(problem);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  const emulation::MatmulPointers pointers = {a, b, c, d, workspace, workspace_bytes};
  const auto algorithm = GetWords<emulation::MatmulAlgorithm>(algo);
  status = emulation::CheckRun(problem, pointers, algorithm);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  emulation::HostProduct product = emulation::ProductOf(problem, pointers, algorithm);
  product.alpha = *static_cast<const float*>(alpha);
  product.beta = *static_cast<const float*>(beta);
  product.device = device;
  return emulation::Enqueue(stream, [product] { return emulation::Run(product); }) == cudaSuccess
             ? CUBLAS_STATUS_SUCCESS
             : CUBLAS_STATUS_EXECUTION_FAILED;
}

}  // extern "C"
