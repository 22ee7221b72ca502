// A replacement for cuBLASLt on emulated GPUs, with the functions that the backend calls. It
// computes
//
//   D = op(A) op(B) + bias      op(A): m x k, op(B): k x n, D: m x n, column-major, no gaps
//
// as a convolution of 1 x 1 (host_convolution.h), rounded to D's type once. It refuses calls that
// the backend must not make: alpha must be 1, beta 0, and all operands and biases aligned to 16
// bytes, as promised. Before a product reads, it fills its outputs and its workspace with NaN, and
// afterwards the workspace again, so that overlapping operands give NaN.
//
// The real library needs a GPU, so its offers are not imitated: there are one algorithm with a
// workspace, one without, and one whose state is an error. There is no epilogue for a bias of
// another type than D's, as documented. There is none either for bias gradients of fp32 factors
// without TF32, so that tests run the backend's own kernel for them.
#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "kernels/cuda/emulation/counts.h"
#include "kernels/cuda/emulation/libraries/host_convolution.h"
#include "kernels/cuda/emulation/libraries/host_numbers.h"
#include "kernels/cuda/emulation/libraries/tensor_values.h"
#include "kernels/cuda/emulation/runtime.h"

// A handle, for the device that was current when it was made.
struct cublasLtContext {
  int device = 0;
};

namespace capstan::kernels::cuda::emulation {
namespace {

constexpr uintptr_t kAlignment = 16;  // The alignment that the backend promises.
constexpr size_t kWorkspaceBytes = 24 << 10;
constexpr uint64_t kAlgorithms = 3;  // Numbered from 1; the state of the last one is an error.

// The contents of the opaque types of cublasLt.h.
struct Operation {
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  int32_t transpose_a = CUBLAS_OP_N, transpose_b = CUBLAS_OP_N;
  uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  int32_t bias_type = -1;  // -1: D's.
  float* bias = nullptr;
};
struct Layout {
  cudaDataType type = CUDA_R_32F;
  int64_t rows = 0, columns = 0;

  size_t bytes() const {
    return static_cast<size_t>(rows * columns) * (type == CUDA_R_32F ? 4 : 2);
  }
};
struct Preference {
  uint64_t workspace_bytes_max = 0;
  int alignments = 0;  // How many of the four alignments were promised.
};

template <typename T, typename Words>
T As(const Words* words) {
  T value;
  std::memcpy(&value, words->data, sizeof(T));
  return value;
}
template <typename T, typename Words>
cublasStatus_t Put(const T& value, Words* words) {
  static_assert(sizeof(T) <= sizeof(words->data));
  std::memcpy(words->data, &value, sizeof(T));
  return CUBLAS_STATUS_SUCCESS;
}
template <typename T, typename Words>
cublasStatus_t Make(const T& value, Words** made) {
  *made = new Words{};
  return Put(value, *made);
}
template <typename Words>
cublasStatus_t Destroy(Words* words) {
  delete words;
  return CUBLAS_STATUS_SUCCESS;
}

// Copies one attribute. False if the size is not exactly that of T.
template <typename T>
bool Take(const void* buffer, size_t bytes, T* field) {
  if (bytes != sizeof(T)) return false;
  std::memcpy(field, buffer, sizeof(T));
  return true;
}

struct Product {
  Product(cublasLtMatmulDesc_t descriptor, cublasLtMatrixLayout_t a_layout,
          cublasLtMatrixLayout_t b_layout, cublasLtMatrixLayout_t d_layout)
      : operation(As<Operation>(descriptor)),
        a(As<Layout>(a_layout)),
        b(As<Layout>(b_layout)),
        d(As<Layout>(d_layout)),
        a_transposed(operation.transpose_a == CUBLAS_OP_T),
        b_transposed(operation.transpose_b == CUBLAS_OP_T),
        tf32(operation.compute == CUBLAS_COMPUTE_32F_FAST_TF32),
        has_bias(operation.epilogue == CUBLASLT_EPILOGUE_BIAS),
        has_bias_gradient(operation.epilogue == CUBLASLT_EPILOGUE_BGRADB) {}

  // Checks that shapes, types and epilogue fit together.
  cublasStatus_t Check() const {
    if ((a_transposed ? a.columns : a.rows) != d.rows ||
        (b_transposed ? b.rows : b.columns) != d.columns ||
        (a_transposed ? a.rows : a.columns) != (b_transposed ? b.columns : b.rows)) {
      return CUBLAS_STATUS_INVALID_VALUE;
    }
    const bool fp32 = a.type == CUDA_R_32F;
    const bool types =
        a.type == b.type && (d.type == a.type || d.type == CUDA_R_32F) && (fp32 || !tf32);
    const bool fp32_bias = operation.bias_type == CUDA_R_32F && d.type == CUDA_R_32F;
    const bool epilogue = has_bias            ? fp32_bias
                          : has_bias_gradient ? fp32_bias && (!fp32 || tf32)
                                              : operation.epilogue == CUBLASLT_EPILOGUE_DEFAULT;
    return types && epilogue ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
  }

  size_t bias_bytes() const {
    return 4 * static_cast<size_t>(has_bias ? d.rows : has_bias_gradient ? d.columns : 0);
  }

  Operation operation;
  Layout a, b, d;
  bool a_transposed, b_transposed, tf32, has_bias, has_bias_gradient;
  const void* a_data = nullptr;
  const void* b_data = nullptr;
  void* d_data = nullptr;
  void* workspace = nullptr;
  size_t workspace_bytes = 0;
  int device = 0;
};

// The order of a matrix's elements: column by column, or row by row.
enum class Order { kColumns, kRows };
Tensor TensorOf(const Layout& layout, Order order) {
  Tensor tensor = {.type = layout.type == CUDA_R_16BF  ? CUDNN_DATA_BFLOAT16
                           : layout.type == CUDA_R_16F ? CUDNN_DATA_HALF
                                                       : CUDNN_DATA_FLOAT,
                   .dims = {1, layout.rows, 1, layout.columns},
                   .strides = {0, 1, 0, layout.rows}};
  if (order == Order::kRows) {
    std::swap(tensor.dims[1], tensor.dims[3]);
    std::swap(tensor.strides[1], tensor.strides[3]);
  }
  return tensor;
}

std::vector<float> FactorOf(const Layout& layout, const void* data, Order order, bool tf32) {
  std::vector<float> values = Load(TensorOf(layout, order), data);
  for (float& value : values) value = tf32 ? RoundToTf32(value) : value;
  return values;
}

cudaError_t Run(const Product& p) {
  if (!IsDeviceMemory(p.device, p.a_data, p.a.bytes()) ||
      !IsDeviceMemory(p.device, p.b_data, p.b.bytes()) ||
      !IsDeviceMemory(p.device, p.d_data, p.d.bytes()) ||
      !IsDeviceMemory(p.device, p.operation.bias, p.bias_bytes()) ||
      !IsDeviceMemory(p.device, p.workspace, p.workspace_bytes)) {
    return cudaErrorIllegalAddress;
  }
  if (CountKernel(p.a.bytes() + p.b.bytes() + p.d.bytes() + p.bias_bytes())) {
    return cudaSuccess;
  }
  FillWithNan(p.workspace, p.workspace_bytes);
  FillWithNan(p.d_data, p.d.bytes());
  float* const bias = p.operation.bias;
  if (p.has_bias_gradient) FillWithNan(bias, p.bias_bytes());
  // Both have the summed dimension last: [m, k] and [n, k].
  const auto a = FactorOf(p.a, p.a_data, p.a_transposed ? Order::kColumns : Order::kRows, p.tf32);
  const auto b = FactorOf(p.b, p.b_data, p.b_transposed ? Order::kRows : Order::kColumns, p.tf32);
  const int64_t m = p.d.rows, n = p.d.columns, k = static_cast<int64_t>(a.size()) / m;
  const std::vector<double> sums = ConvolutionForward({.n = n,
                                                       .c = k,
                                                       .k = m,
                                                       .image = {1, 1},
                                                       .result = {1, 1},
                                                       .window = {1, 1},
                                                       .stride = {1, 1},
                                                       .dilation = {1, 1}},
                                                      b, a);
  std::vector<float> values(sums.begin(), sums.end());
  for (int64_t i = 0; i < n * m && p.has_bias; ++i) values[static_cast<size_t>(i)] += bias[i % m];
  Store(TensorOf(p.d, Order::kColumns), values, p.d_data);
  for (int64_t j = 0; j < n && p.has_bias_gradient; ++j) {
    double sum = 0.0;
    for (int64_t l = 0; l < k; ++l) sum += b[static_cast<size_t>(j * k + l)];
    bias[j] = static_cast<float>(sum);
  }
  FillWithNan(p.workspace, p.workspace_bytes);
  return cudaSuccess;
}

}  // namespace

extern "C" {  // With C linkage a function is the library's in any namespace.

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  *handle = new cublasLtContext;
  return cudaGetDevice(&(*handle)->device) == cudaSuccess ? CUBLAS_STATUS_SUCCESS
                                                          : CUBLAS_STATUS_NOT_INITIALIZED;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}
const char* cublasLtGetStatusName(cublasStatus_t status) {
  return status == CUBLAS_STATUS_NOT_SUPPORTED   ? "CUBLAS_STATUS_NOT_SUPPORTED"
         : status == CUBLAS_STATUS_INVALID_VALUE ? "CUBLAS_STATUS_INVALID_VALUE"
                                                 : "CUBLAS_STATUS_EXECUTION_FAILED";
}
const char* cublasLtGetStatusString(cublasStatus_t status) { return cublasLtGetStatusName(status); }
size_t cublasLtGetVersion() { return CUBLAS_VERSION; }

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* made, cudaDataType type,
                                          uint64_t rows, uint64_t columns, int64_t ld) {
  if (rows < 1 || columns < 1 || static_cast<uint64_t>(ld) != rows) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  return Make(Layout{type, static_cast<int64_t>(rows), static_cast<int64_t>(columns)}, made);
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  return Destroy(layout);
}
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* made, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  if (scale != CUDA_R_32F) return CUBLAS_STATUS_NOT_SUPPORTED;
  return Make(Operation{.compute = compute}, made);
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t descriptor) {
  return Destroy(descriptor);
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* made) {
  return Make(Preference{}, made);
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  return Destroy(preference);
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t descriptor,
                                              cublasLtMatmulDescAttributes_t name,
                                              const void* buffer, size_t bytes) {
  auto o = As<Operation>(descriptor);
  const bool taken = name == CUBLASLT_MATMUL_DESC_TRANSA     ? Take(buffer, bytes, &o.transpose_a)
                     : name == CUBLASLT_MATMUL_DESC_TRANSB   ? Take(buffer, bytes, &o.transpose_b)
                     : name == CUBLASLT_MATMUL_DESC_EPILOGUE ? Take(buffer, bytes, &o.epilogue)
                     : name == CUBLASLT_MATMUL_DESC_BIAS_POINTER ? Take(buffer, bytes, &o.bias)
                     : name == CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE
                         ? Take(buffer, bytes, &o.bias_type)
                         : false;
  return taken ? Put(o, descriptor) : CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t words,
                                                    cublasLtMatmulPreferenceAttributes_t name,
                                                    const void* buffer, size_t bytes) {
  auto preference = As<Preference>(words);
  uint32_t value = 0;
  if (name == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES) {
    if (!Take(buffer, bytes, &preference.workspace_bytes_max)) return CUBLAS_STATUS_INVALID_VALUE;
  } else if (name == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK) {
    if (!Take(buffer, bytes, &value)) return CUBLAS_STATUS_INVALID_VALUE;
  } else if (name >= CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES &&
             name <= CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES) {
    if (!Take(buffer, bytes, &value) || value != kAlignment) return CUBLAS_STATUS_INVALID_VALUE;
    ++preference.alignments;
  } else {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  return Put(preference, words);
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t descriptor,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t words, int count_max,
                                              cublasLtMatmulHeuristicResult_t results[],
                                              int* count) {
  *count = 0;
  const auto preference = As<Preference>(words);
  if (preference.alignments != 4) return CUBLAS_STATUS_INVALID_VALUE;
  const cublasStatus_t status = Product(descriptor, a, b, d).Check();
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  for (uint64_t number = 1; number <= kAlgorithms && *count < count_max; ++number) {
    const size_t workspace_bytes = number == 1 ? kWorkspaceBytes : 0;
    if (workspace_bytes > preference.workspace_bytes_max) continue;
    cublasLtMatmulHeuristicResult_t& result = results[(*count)++];
    result = {};
    result.algo.data[0] = number;
    result.workspaceSize = workspace_bytes;
    result.state = number < kAlgorithms ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t descriptor,
                              const void* alpha, const void* a, cublasLtMatrixLayout_t a_layout,
                              const void* b, cublasLtMatrixLayout_t b_layout, const void* beta,
                              const void* c, cublasLtMatrixLayout_t, void* d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t* algo,
                              void* workspace, size_t workspace_bytes, cudaStream_t stream) {
  Product product(descriptor, a_layout, b_layout, d_layout);
  const cublasStatus_t status = product.Check();
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  const uint64_t number = algo->data[0];
  product.a_data = a;
  product.b_data = b;
  product.d_data = d;
  product.workspace = workspace;
  product.workspace_bytes = number == 1 ? kWorkspaceBytes : 0;
  product.device = handle->device;
  const void* const bias = product.bias_bytes() > 0 ? product.operation.bias : d;
  for (const void* const operand : {a, b, c, static_cast<const void*>(d), bias}) {
    if (operand == nullptr || reinterpret_cast<uintptr_t>(operand) % kAlignment != 0) {
      return CUBLAS_STATUS_INVALID_VALUE;
    }
  }
  if (number < 1 || number >= kAlgorithms || workspace_bytes < product.workspace_bytes ||
      *static_cast<const float*>(alpha) != 1.0f || *static_cast<const float*>(beta) != 0.0f) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  return Enqueue(stream, [product] { return Run(product); }) == cudaSuccess
             ? CUBLAS_STATUS_SUCCESS
             : CUBLAS_STATUS_EXECUTION_FAILED;
}

}  // extern "C"
}  // namespace capstan::kernels::cuda::emulation
