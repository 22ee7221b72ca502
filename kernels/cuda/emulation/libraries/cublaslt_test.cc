// Tests of the emulated cuBLASLt: how it rounds, and what it refuses.
// tests/gpu/op_conformance_test.cc compares the backend's products with the reference.
#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <array>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/cuda/emulation/device_values.h"

namespace capstan::kernels::cuda::emulation::cublaslt_test {
namespace {

constexpr int64_t kSide = 8;
constexpr size_t kElements = kSide * kSide;
constexpr uint64_t kWorkspaceBytes = 64 << 10;

struct Form {
  cudaDataType factors = CUDA_R_32F, result = CUDA_R_32F;
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
};

// The product D = A B of fp32 matrices, kSide x kSide, with the backend's calls. A is full of 1, B
// of 2.
class Product {
 public:
  explicit Product(const Form& form) {
    REQUIRE(cublasLtCreate(&handle) == 0);
    REQUIRE(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
    REQUIRE(cudaMalloc(&workspace, kWorkspaceBytes) == cudaSuccess);
    float value = 1;
    for (float** const array : {&a, &b, &d, &bias}) {
      void* memory = nullptr;
      REQUIRE(cudaMalloc(&memory, (kElements + 4) * 4) == cudaSuccess);
      *array = static_cast<float*>(memory);
      WriteAll(*array, std::vector<float>(kElements, value++));
    }
    REQUIRE(cublasLtMatrixLayoutCreate(&factor, form.factors, kSide, kSide, kSide) == 0);
    REQUIRE(cublasLtMatrixLayoutCreate(&result, form.result, kSide, kSide, kSide) == 0);
    REQUIRE(cublasLtMatmulDescCreate(&operation, form.compute, CUDA_R_32F) == 0);
    Set(CUBLASLT_MATMUL_DESC_EPILOGUE, form.epilogue);
    Set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, CUDA_R_32F);
    Set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
  }
  ~Product() {
    for (void* const memory : {static_cast<void*>(a), static_cast<void*>(b), static_cast<void*>(d),
                               static_cast<void*>(bias), workspace}) {
      cudaFree(memory);
    }
    cudaStreamDestroy(stream);
    cublasLtMatrixLayoutDestroy(factor);
    cublasLtMatrixLayoutDestroy(result);
    cublasLtMatmulDescDestroy(operation);
    cublasLtDestroy(handle);
  }
  Product(const Product&) = delete;
  Product& operator=(const Product&) = delete;

  template <typename T>
  void Set(cublasLtMatmulDescAttributes_t name, const T& value) {
    REQUIRE(cublasLtMatmulDescSetAttribute(operation, name, &value, sizeof(value)) == 0);
  }

  cublasStatus_t Ask(uint32_t alignment = 16) {
    cublasLtMatmulPreference_t preference = nullptr;
    REQUIRE(cublasLtMatmulPreferenceCreate(&preference) == 0);
    REQUIRE(cublasLtMatmulPreferenceSetAttribute(preference,
                                                 CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                 &kWorkspaceBytes, sizeof(kWorkspaceBytes)) == 0);
    for (int name = CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES;
         name <= CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES; ++name) {
      cublasLtMatmulPreferenceSetAttribute(
          preference, static_cast<cublasLtMatmulPreferenceAttributes_t>(name), &alignment, 4);
    }
    int count = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
        handle, operation, factor, factor, result, result, preference, 8, offers.data(), &count);
    CHECK(count == (status == CUBLAS_STATUS_SUCCESS ? 3 : 0));
    cublasLtMatmulPreferenceDestroy(preference);
    return status;
  }
  cublasStatus_t Enqueue(const void* left, size_t offer = 0, float beta = 0) {
    const float alpha = 1;
    return cublasLtMatmul(handle, operation, &alpha, left, factor, b, factor, &beta, d, result, d,
                          result, &offers[offer].algo, workspace, kWorkspaceBytes, stream);
  }
  // Runs the product and returns D's first element.
  float Run(const void* left) {
    REQUIRE(Ask() == CUBLAS_STATUS_SUCCESS);
    REQUIRE(Enqueue(left) == CUBLAS_STATUS_SUCCESS);
    REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
    return Read(d);
  }

  cublasLtHandle_t handle = nullptr;
  cudaStream_t stream = nullptr;
  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatrixLayout_t factor = nullptr, result = nullptr;
  float *a = nullptr, *b = nullptr, *d = nullptr, *bias = nullptr;
  void* workspace = nullptr;
  std::array<cublasLtMatmulHeuristicResult_t, 8> offers{};
};

TEST_CASE("Emulated cuBLASLt: TF32 rounds factors to 10 bits, fp32 does not", "[kernels][cuda]") {
  const float value = 1 + std::ldexp(5.0f, -13);
  for (const auto compute : {CUBLAS_COMPUTE_32F, CUBLAS_COMPUTE_32F_FAST_TF32}) {
    Product product({.compute = compute, .epilogue = CUBLASLT_EPILOGUE_BIAS});
    WriteAll(product.a, std::vector<float>(kElements, value));
    const float taken = compute == CUBLAS_COMPUTE_32F ? value : 1 + std::ldexp(1.0f, -10);
    CHECK(product.Run(product.a) == kSide * taken * 2 + 4);
  }
}

TEST_CASE("Emulated cuBLASLt: spoils its workspace, and what overlaps with what it writes",
          "[kernels][cuda]") {
  Product product({});
  auto* const words = static_cast<float*>(product.workspace);
  WriteAll(words, std::vector<float>(kWorkspaceBytes / 4, 7.0f));
  CHECK(product.Run(product.a) == 2 * kSide);
  const size_t used = product.offers[0].workspaceSize / 4;
  CHECK(std::isnan(Read(words + used - 1)));
  CHECK(Read(words + used) == 7.0f);
  CHECK(std::isnan(product.Run(product.d)));
  WriteAll(words, std::vector<float>(kElements, 7.0f));
  CHECK(std::isnan(product.Run(words)));
}

TEST_CASE("Emulated cuBLASLt: an operand that is no device memory fails the work",
          "[kernels][cuda]") {
  Product product({});
  alignas(16) float host[kElements] = {};
  REQUIRE(product.Ask() == CUBLAS_STATUS_SUCCESS);
  REQUIRE(product.Enqueue(host) == CUBLAS_STATUS_SUCCESS);
  CHECK(cudaStreamSynchronize(product.stream) == cudaErrorIllegalAddress);
  cudaDeviceReset();
}

TEST_CASE("Emulated cuBLASLt: refuses what the backend must not ask", "[kernels][cuda]") {
  const auto asked = [](const Form& form) { return Product(form).Ask(); };
  constexpr auto kNotSupported = CUBLAS_STATUS_NOT_SUPPORTED;
  CHECK(asked({.factors = CUDA_R_32F, .result = CUDA_R_16BF}) == kNotSupported);
  CHECK(asked({.factors = CUDA_R_16F, .compute = CUBLAS_COMPUTE_32F_FAST_TF32}) == kNotSupported);
  CHECK(asked({.epilogue = CUBLASLT_EPILOGUE_RELU}) == kNotSupported);
  CHECK(asked({.epilogue = CUBLASLT_EPILOGUE_BGRADB}) == kNotSupported);
  CHECK(
      asked({.factors = CUDA_R_16BF, .result = CUDA_R_16BF, .epilogue = CUBLASLT_EPILOGUE_BIAS}) ==
      kNotSupported);
  cublasLtMatrixLayout_t layout = nullptr;
  CHECK(cublasLtMatrixLayoutCreate(&layout, CUDA_R_32F, 3, 2, 4) == CUBLAS_STATUS_INVALID_VALUE);

  Product product({.epilogue = CUBLASLT_EPILOGUE_BIAS});
  CHECK(product.Ask(/*alignment=*/256) == CUBLAS_STATUS_INVALID_VALUE);
  REQUIRE(product.Ask() == CUBLAS_STATUS_SUCCESS);
  CHECK(product.offers[2].state == kNotSupported);
  CHECK(product.Enqueue(product.a, 2) == kNotSupported);
  CHECK(product.Enqueue(product.a, 0, /*beta=*/1) == kNotSupported);
  CHECK(product.Enqueue(product.a + 1) == CUBLAS_STATUS_INVALID_VALUE);
  product.Set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, product.bias + 1);
  CHECK(product.Enqueue(product.a) == CUBLAS_STATUS_INVALID_VALUE);
}

}  // namespace
}  // namespace capstan::kernels::cuda::emulation::cublaslt_test
