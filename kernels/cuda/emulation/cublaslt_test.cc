// The emulated cuBLASLt against a plain triple loop, and what it refuses.
#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "kernels/cuda/emulation/device_values.h"
#include "kernels/half_values.h"

namespace capstan::kernels::cuda::emulation {
namespace {

constexpr size_t kWorkspaceBytes = 64 << 10;

// ---------------------------------------------------------------- device memory, columns first

size_t BytesOf(cudaDataType type) { return type == CUDA_R_32F ? 4 : 2; }
DataType HalfOf(cudaDataType type) {
  return type == CUDA_R_16BF ? DataType::kBfloat16 : DataType::kFloat16;
}

// A matrix with `gap` elements between its columns.
class Stored {
 public:
  Stored(cudaDataType of, int64_t height, int64_t width, int64_t gap = 0)
      : type(of), rows(height), columns(width), ld(height + gap) {
    const int64_t elements = std::max(ld, rows) * columns;
    REQUIRE(cudaMalloc(&data_, static_cast<size_t>(elements) * BytesOf(type)) == cudaSuccess);
    REQUIRE(cublasLtMatrixLayoutCreate(&layout_, type, static_cast<uint64_t>(rows),
                                       static_cast<uint64_t>(columns), ld) == 0);
  }
  ~Stored() {
    cublasLtMatrixLayoutDestroy(layout_);
    cudaFree(data_);
  }
  Stored(const Stored&) = delete;
  Stored& operator=(const Stored&) = delete;

  // Multiples of 1/4 below 4: exact in every type, as are sums of some products in fp32.
  void Fill(uint32_t seed) {
    for (int64_t j = 0; j < columns; ++j) {
      for (int64_t i = 0; i < rows; ++i) {
        seed = seed * 1664525 + 1013904223;
        Set(i, j, static_cast<float>(static_cast<int>(seed >> 27) - 16) / 4);
      }
    }
  }

  void Set(int64_t i, int64_t j, float value) {
    if (type == CUDA_R_32F) return Write(static_cast<float*>(data_) + j * ld + i, value);
    Write(static_cast<uint16_t*>(data_) + j * ld + i, ToHalf(HalfOf(type), value));
  }
  float Get(int64_t i, int64_t j) const {
    if (type == CUDA_R_32F) return Read(static_cast<const float*>(data_) + j * ld + i);
    return FromHalf(HalfOf(type), Read(static_cast<const uint16_t*>(data_) + j * ld + i));
  }
  // Rounded to the matrix's type.
  float Rounded(float value) const {
    return type == CUDA_R_32F ? value : FromHalf(HalfOf(type), ToHalf(HalfOf(type), value));
  }

  void* data() const { return data_; }
  cublasLtMatrixLayout_t layout() const { return layout_; }

  const cudaDataType type;
  const int64_t rows, columns, ld;

 private:
  void* data_ = nullptr;
  cublasLtMatrixLayout_t layout_ = nullptr;
};

// ---------------------------------------------------------------- a product

struct Form {
  int64_t m = 5, n = 4, k = 7;
  bool ta = false, tb = false;
  cudaDataType factors = CUDA_R_32F, result = CUDA_R_32F;
  int64_t gap = 0;
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
};

// All that a product needs; what a test does not say, is as it should be.
class Product {
 public:
  explicit Product(const Form& form)
      : a(form.factors, form.ta ? form.k : form.m, form.ta ? form.m : form.k, form.gap),
        b(form.factors, form.tb ? form.n : form.k, form.tb ? form.k : form.n, form.gap),
        d(form.result, form.m, form.n, form.gap),
        bias(CUDA_R_32F, std::max(form.m, form.n), 1),
        workspace(CUDA_R_32F, kWorkspaceBytes / 4, 1) {
    REQUIRE(cublasLtCreate(&handle) == 0);
    REQUIRE(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
    REQUIRE(cublasLtMatmulDescCreate(&operation, form.compute, CUDA_R_32F) == 0);
    Set(CUBLASLT_MATMUL_DESC_TRANSA, form.ta ? CUBLAS_OP_T : CUBLAS_OP_N);
    Set(CUBLASLT_MATMUL_DESC_TRANSB, form.tb ? CUBLAS_OP_T : CUBLAS_OP_N);
    Set(CUBLASLT_MATMUL_DESC_EPILOGUE, form.epilogue);
    Set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, CUDA_R_32F);
    if (form.epilogue != CUBLASLT_EPILOGUE_DEFAULT) {
      Set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias.data());
    }
    REQUIRE(cublasLtMatmulPreferenceCreate(&preference) == 0);
    Prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{kWorkspaceBytes});
    a.Fill(1);
    b.Fill(2);
    bias.Fill(3);
  }
  ~Product() {
    cudaStreamDestroy(stream);
    cublasLtMatmulPreferenceDestroy(preference);
    cublasLtMatmulDescDestroy(operation);
    cublasLtDestroy(handle);
  }
  Product(const Product&) = delete;
  Product& operator=(const Product&) = delete;

  template <typename T>
  void Set(cublasLtMatmulDescAttributes_t name, const T& value) {
    REQUIRE(cublasLtMatmulDescSetAttribute(operation, name, &value, sizeof(value)) == 0);
  }
  template <typename T>
  void Prefer(cublasLtMatmulPreferenceAttributes_t name, const T& value) {
    REQUIRE(cublasLtMatmulPreferenceSetAttribute(preference, name, &value, sizeof(value)) == 0);
  }

  cublasStatus_t Ask(int count_max = 8) {
    offers.assign(static_cast<size_t>(std::max(count_max, 1)), {});
    int count = 0;
    const cublasStatus_t status =
        cublasLtMatmulAlgoGetHeuristic(handle, operation, a.layout(), b.layout(), d.layout(),
                                       d.layout(), preference, count_max, offers.data(), &count);
    offers.resize(static_cast<size_t>(count));
    return status;
  }

  struct With {
    const void* a;
    const void* b;
    void* d;
    void* workspace;
    size_t workspace_bytes = kWorkspaceBytes;
    float alpha = 1.0f, beta = 0.0f;
  };
  With Usual() const { return {a.data(), b.data(), d.data(), workspace.data()}; }

  cublasStatus_t Enqueue(const With& with, size_t offer = 0) {
    return cublasLtMatmul(handle, operation, &with.alpha, with.a, a.layout(), with.b, b.layout(),
                          &with.beta, with.d, d.layout(), with.d, d.layout(), &offers[offer].algo,
                          with.workspace, with.workspace_bytes, stream);
  }
  void Run(size_t offer = 0) {
    REQUIRE(Enqueue(Usual(), offer) == CUBLAS_STATUS_SUCCESS);
    REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
  }

  Stored a, b, d, bias, workspace;
  cublasLtHandle_t handle = nullptr;
  cudaStream_t stream = nullptr;
  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatmulPreference_t preference = nullptr;
  std::vector<cublasLtMatmulHeuristicResult_t> offers;
};

float Factor(const Stored& matrix, bool transposed, int64_t i, int64_t j) {
  return transposed ? matrix.Get(j, i) : matrix.Get(i, j);
}

// The plain triple loop, in fp32: all its sums are exact.
float Expected(const Product& p, const Form& f, int64_t i, int64_t j) {
  float sum = 0.0f;
  for (int64_t l = 0; l < f.k; ++l) {
    sum += Factor(p.a, f.ta, i, l) * Factor(p.b, f.tb, l, j);
  }
  if (f.epilogue == CUBLASLT_EPILOGUE_BIAS) sum += p.bias.Get(i, 0);
  return p.d.Rounded(sum);
}

void CheckResult(const Product& p, const Form& f) {
  for (int64_t j = 0; j < f.n; ++j) {
    for (int64_t i = 0; i < f.m; ++i) CHECK(p.d.Get(i, j) == Expected(p, f, i, j));
    // Nothing is written between columns: fresh memory is full of NaN.
    for (int64_t i = f.m; i < p.d.ld; ++i) CHECK(std::isnan(p.d.Get(i, j)));
  }
}

constexpr cudaDataType kTypes[][2] = {{CUDA_R_32F, CUDA_R_32F},
                                      {CUDA_R_16BF, CUDA_R_16BF},
                                      {CUDA_R_16BF, CUDA_R_32F},
                                      {CUDA_R_16F, CUDA_R_16F},
                                      {CUDA_R_16F, CUDA_R_32F}};

// ---------------------------------------------------------------- products

TEST_CASE("Emulated cuBLASLt: is a plain triple loop, in all types, transposed or not",
          "[kernels][cuda]") {
  for (const auto& types : kTypes) {
    for (const bool ta : {false, true}) {
      for (const bool tb : {false, true}) {
        for (const int64_t gap : {0, 3}) {
          const Form form = {
              .ta = ta, .tb = tb, .factors = types[0], .result = types[1], .gap = gap};
          INFO(types[0] << " " << types[1] << " " << ta << tb << " gap " << gap);
          Product product(form);
          REQUIRE(product.Ask() == CUBLAS_STATUS_SUCCESS);
          product.Run();
          CheckResult(product, form);
        }
      }
    }
  }
}

TEST_CASE("Emulated cuBLASLt: adds a bias to each row of D", "[kernels][cuda]") {
  for (const size_t offer : {0, 1, 2}) {
    const Form form = {.gap = 1, .epilogue = CUBLASLT_EPILOGUE_BIAS};
    Product product(form);
    REQUIRE(product.Ask() == CUBLAS_STATUS_SUCCESS);
    product.Run(offer);
    CheckResult(product, form);
  }
}

TEST_CASE("Emulated cuBLASLt: sums op(B) over k, one sum for each column of D", "[kernels][cuda]") {
  for (const bool tb : {false, true}) {
    const Form form = {.tb = tb,
                       .factors = CUDA_R_16BF,
                       .result = CUDA_R_32F,
                       .gap = 2,
                       .epilogue = CUBLASLT_EPILOGUE_BGRADB};
    Product product(form);
    REQUIRE(product.Ask() == CUBLAS_STATUS_SUCCESS);
    product.bias.Fill(9);
    const float beyond = product.bias.Get(form.n, 0);
    product.Run();
    CheckResult(product, form);
    for (int64_t j = 0; j < form.n; ++j) {
      float sum = 0.0f;
      for (int64_t l = 0; l < form.k; ++l) sum += Factor(product.b, tb, l, j);
      CHECK(product.bias.Get(j, 0) == sum);
    }
    CHECK(product.bias.Get(form.n, 0) == beyond);
  }
}

TEST_CASE("Emulated cuBLASLt: TF32 rounds factors to 10 bits, ties to even; fp32 does not",
          "[kernels][cuda]") {
  const float ulp = std::ldexp(1.0f, -10);
  // A factor, and what TF32 makes of it.
  const float rounded[][2] = {{1 + ulp / 2, 1},
                              {1 + ulp * 3 / 2, 1 + 2 * ulp},
                              {1 + ulp * 5 / 8, 1 + ulp},
                              {-1 - ulp * 3 / 8, -1},
                              {INFINITY, INFINITY}};
  for (const auto& [value, expected] : rounded) {
    for (const auto compute : {CUBLAS_COMPUTE_32F, CUBLAS_COMPUTE_32F_FAST_TF32}) {
      Product product({.m = 1, .n = 1, .k = 1, .compute = compute});
      REQUIRE(product.Ask() == CUBLAS_STATUS_SUCCESS);
      product.a.Set(0, 0, value);
      product.b.Set(0, 0, 1);
      product.Run();
      CHECK(product.d.Get(0, 0) == (compute == CUBLAS_COMPUTE_32F ? value : expected));
    }
  }
}

TEST_CASE("Emulated cuBLASLt: D = alpha A B + beta C; what is not wanted is not read",
          "[kernels][cuda]") {
  const Form form;
  Product product(form);
  REQUIRE(product.Ask() == CUBLAS_STATUS_SUCCESS);
  product.d.Fill(4);
  const float before = product.d.Get(2, 3);
  Product::With with = product.Usual();
  with.alpha = 2.0f;
  with.beta = 0.5f;
  REQUIRE(product.Enqueue(with) == CUBLAS_STATUS_SUCCESS);
  with.alpha = 7.0f;  // It has been read.
  REQUIRE(cudaStreamSynchronize(product.stream) == cudaSuccess);
  CHECK(product.d.Get(2, 3) == 2 * Expected(product, form, 2, 3) + before / 2);

  product.d.Set(2, 3, NAN);
  product.Run();
  CheckResult(product, form);
}

TEST_CASE("Emulated cuBLASLt: works when somebody waits; spoils its workspace", "[kernels][cuda]") {
  const Form form;
  Product product(form);
  REQUIRE(product.Ask() == CUBLAS_STATUS_SUCCESS);
  product.d.Fill(4);
  product.workspace.Fill(5);
  const float before = product.d.Get(0, 0);
  REQUIRE(product.Enqueue(product.Usual()) == CUBLAS_STATUS_SUCCESS);
  CHECK(product.d.Get(0, 0) == before);
  product.a.Set(0, 0, 3);
  REQUIRE(cudaStreamSynchronize(product.stream) == cudaSuccess);
  CheckResult(product, form);
  CHECK(std::isnan(product.workspace.Get(0, 0)));
  const auto used = static_cast<int64_t>(product.offers[0].workspaceSize);
  CHECK(std::isnan(product.workspace.Get(used / 4 - 1, 0)));
  CHECK_FALSE(std::isnan(product.workspace.Get(used / 4, 0)));
}

TEST_CASE("Emulated cuBLASLt: finds operands that are no device memory, or overlap, when it runs",
          "[kernels][cuda]") {
  std::vector<float> host(64);
  const auto outcome = [&](const auto& change) {
    Product product({});
    product.Prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, uint32_t{4});
    REQUIRE(product.Ask() == CUBLAS_STATUS_SUCCESS);
    Product::With with = product.Usual();
    change(product, with);
    REQUIRE(product.Enqueue(with) == CUBLAS_STATUS_SUCCESS);
    const cudaError_t error = cudaStreamSynchronize(product.stream);
    cudaDeviceReset();  // The device would tell every error for ever.
    return error;
  };
  CHECK(outcome([](Product&, Product::With&) {}) == cudaSuccess);
  CHECK(outcome([&](Product&, Product::With& with) { with.a = host.data(); }) ==
        cudaErrorIllegalAddress);
  // Beyond its end.
  CHECK(outcome([](Product& p, Product::With& with) {
          with.a = static_cast<char*>(p.a.data()) + 4;
        }) == cudaErrorIllegalAddress);
  CHECK(outcome([](Product& p, Product::With& with) { with.a = p.workspace.data(); }) ==
        cudaErrorLaunchFailure);
  // Too short a piece.
  CHECK(outcome([](Product& p, Product::With& with) { with.workspace = p.bias.data(); }) ==
        cudaErrorIllegalAddress);
  CHECK(outcome([](Product& p, Product::With& with) { with.d = p.b.data(); }) ==
        cudaErrorLaunchFailure);
}

// ---------------------------------------------------------------- what is offered and refused

TEST_CASE("Emulated cuBLASLt: offers three algorithms, and one whose state says no",
          "[kernels][cuda]") {
  Product product({});
  REQUIRE(product.Ask() == CUBLAS_STATUS_SUCCESS);
  REQUIRE(product.offers.size() == 4);
  CHECK(product.offers[0].workspaceSize > 0);
  for (size_t i = 0; i < 4; ++i) {
    CHECK(product.offers[i].state == (i < 3 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED));
    for (size_t k = 0; k < i; ++k) {
      CHECK(std::memcmp(&product.offers[i].algo, &product.offers[k].algo,
                        sizeof(cublasLtMatmulAlgo_t)) != 0);
    }
  }
  CHECK(product.Enqueue(product.Usual(), 3) == CUBLAS_STATUS_NOT_SUPPORTED);

  REQUIRE(product.Ask(2) == CUBLAS_STATUS_SUCCESS);
  CHECK(product.offers.size() == 2);
  product.Prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{1000});
  REQUIRE(product.Ask() == CUBLAS_STATUS_SUCCESS);
  CHECK(product.offers.size() == 3);
  CHECK(product.offers[0].workspaceSize == 0);
  CHECK(product.Ask(0) == CUBLAS_STATUS_INVALID_VALUE);
}

cublasStatus_t Asked(const Form& form) {
  Product product(form);
  const cublasStatus_t status = product.Ask();
  CHECK(product.offers.empty() == (status != CUBLAS_STATUS_SUCCESS));
  return status;
}

TEST_CASE("Emulated cuBLASLt: knows types and epilogues that go together", "[kernels][cuda]") {
  constexpr auto kTf32 = CUBLAS_COMPUTE_32F_FAST_TF32;
  CHECK(Asked({.factors = CUDA_R_32F, .result = CUDA_R_16BF}) == CUBLAS_STATUS_NOT_SUPPORTED);
  CHECK(Asked({.factors = CUDA_R_16F, .result = CUDA_R_16BF}) == CUBLAS_STATUS_NOT_SUPPORTED);
  CHECK(Asked({.factors = CUDA_R_16F, .result = CUDA_R_16F, .compute = kTf32}) ==
        CUBLAS_STATUS_NOT_SUPPORTED);
  CHECK(Asked({.compute = CUBLAS_COMPUTE_16F}) == CUBLAS_STATUS_NOT_SUPPORTED);
  CHECK(Asked({.epilogue = CUBLASLT_EPILOGUE_RELU}) == CUBLAS_STATUS_NOT_SUPPORTED);
  // A bias that is not of D's type.
  CHECK(
      Asked({.factors = CUDA_R_16BF, .result = CUDA_R_16BF, .epilogue = CUBLASLT_EPILOGUE_BIAS}) ==
      CUBLAS_STATUS_NOT_SUPPORTED);
  // A bias gradient without tensor cores.
  CHECK(Asked({.epilogue = CUBLASLT_EPILOGUE_BGRADB}) == CUBLAS_STATUS_NOT_SUPPORTED);
  CHECK(Asked({.compute = kTf32, .epilogue = CUBLASLT_EPILOGUE_BGRADB}) == CUBLAS_STATUS_SUCCESS);
}

TEST_CASE("Emulated cuBLASLt: refuses shapes that do not go together", "[kernels][cuda]") {
  const auto asked = [](const Form& as_layouts, const Form& as_operation) {
    Product layouts(as_layouts);
    Product product(as_operation);
    cublasLtMatmulHeuristicResult_t result;
    int count = -1;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
        product.handle, product.operation, layouts.a.layout(), product.b.layout(),
        product.d.layout(), product.d.layout(), product.preference, 1, &result, &count);
    CHECK(count == (status == CUBLAS_STATUS_SUCCESS ? 1 : 0));
    return status;
  };
  CHECK(asked({}, {}) == CUBLAS_STATUS_SUCCESS);
  CHECK(asked({.ta = true}, {}) == CUBLAS_STATUS_INVALID_VALUE);
  CHECK(asked({.k = 8}, {}) == CUBLAS_STATUS_INVALID_VALUE);
  CHECK(asked({.m = 6}, {}) == CUBLAS_STATUS_INVALID_VALUE);
  // The leading dimension is the stored rows', not those of op(A).
  CHECK(asked({.gap = -1}, {}) == CUBLAS_STATUS_INVALID_VALUE);
  CHECK(asked({.ta = true}, {.ta = true}) == CUBLAS_STATUS_SUCCESS);
  CHECK(asked({.ta = true, .gap = -2}, {.ta = true}) == CUBLAS_STATUS_INVALID_VALUE);
}

TEST_CASE("Emulated cuBLASLt: an algorithm is good for what it was asked for", "[kernels][cuda]") {
  Product product({.gap = 3});
  product.Prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, uint32_t{16});
  REQUIRE(product.Ask() == CUBLAS_STATUS_SUCCESS);
  const auto with = [&](const auto& change) {
    Product::With changed = product.Usual();
    change(changed);
    return product.Enqueue(changed);
  };
  const auto shifted = [](const void* data, int bytes) {
    return static_cast<char*>(const_cast<void*>(data)) + bytes;
  };
  CHECK(with([](auto& w) { w.workspace_bytes = 1000; }) == CUBLAS_STATUS_INVALID_VALUE);
  CHECK(with([](auto& w) { w.workspace = nullptr; }) == CUBLAS_STATUS_INVALID_VALUE);
  CHECK(with([&](auto& w) { w.workspace = shifted(w.workspace, 16); }) ==
        CUBLAS_STATUS_INVALID_VALUE);
  CHECK(with([](auto& w) { w.a = nullptr; }) == CUBLAS_STATUS_INVALID_VALUE);
  CHECK(with([&](auto& w) { w.a = shifted(w.a, 16); }) == CUBLAS_STATUS_NOT_SUPPORTED);
  CHECK(with([&](auto& w) { w.b = shifted(w.b, 8); }) == CUBLAS_STATUS_NOT_SUPPORTED);
  CHECK(with([](auto&) {}) == CUBLAS_STATUS_SUCCESS);

  Product other({.factors = CUDA_R_16F, .result = CUDA_R_32F});
  other.offers = product.offers;
  CHECK(other.Enqueue(other.Usual()) == CUBLAS_STATUS_NOT_SUPPORTED);
  other.offers[0] = {};
  CHECK(other.Enqueue(other.Usual()) == CUBLAS_STATUS_NOT_SUPPORTED);
}

TEST_CASE("Emulated cuBLASLt: a bias lies as it was said to, and somewhere", "[kernels][cuda]") {
  Product product({.m = 4, .n = 8, .epilogue = CUBLASLT_EPILOGUE_BIAS});
  REQUIRE(product.Ask() == CUBLAS_STATUS_SUCCESS);
  void* const off = static_cast<char*>(product.bias.data()) + 4;
  product.Set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, off);
  CHECK(product.Enqueue(product.Usual()) == CUBLAS_STATUS_NOT_SUPPORTED);
  REQUIRE(product.Ask() == CUBLAS_STATUS_SUCCESS);
  product.Run();
  product.Set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, static_cast<void*>(nullptr));
  CHECK(product.Enqueue(product.Usual()) == CUBLAS_STATUS_INVALID_VALUE);
}

// As the library itself answers, where it was asked without a GPU.
TEST_CASE("Emulated cuBLASLt: handles, sizes of attributes, names of errors", "[kernels][cuda]") {
  Product product({});
  const int32_t value = CUBLAS_OP_T;
  const auto set = [&](int name, const void* buffer, size_t bytes) {
    return cublasLtMatmulDescSetAttribute(
        product.operation, static_cast<cublasLtMatmulDescAttributes_t>(name), buffer, bytes);
  };
  CHECK(set(CUBLASLT_MATMUL_DESC_TRANSA, &value, 4) == CUBLAS_STATUS_SUCCESS);
  CHECK(set(CUBLASLT_MATMUL_DESC_TRANSA, &value, 8) == CUBLAS_STATUS_INVALID_VALUE);
  CHECK(set(CUBLASLT_MATMUL_DESC_TRANSA, nullptr, 4) == CUBLAS_STATUS_INVALID_VALUE);
  CHECK(set(999, &value, 4) == CUBLAS_STATUS_INVALID_VALUE);
  CHECK(cublasLtDestroy(nullptr) == CUBLAS_STATUS_INVALID_VALUE);
  CHECK(cublasLtMatmulDescDestroy(nullptr) == CUBLAS_STATUS_SUCCESS);
  int count = 0;
  CHECK(cublasLtMatmulAlgoGetHeuristic(nullptr, nullptr, nullptr, nullptr, nullptr, nullptr,
                                       nullptr, 1, nullptr,
                                       &count) == CUBLAS_STATUS_NOT_INITIALIZED);
  CHECK(cublasLtGetVersion() == CUBLAS_VERSION);
  CHECK(cublasLtGetStatusName(CUBLAS_STATUS_NOT_SUPPORTED) ==
        std::string("CUBLAS_STATUS_NOT_SUPPORTED"));
  CHECK(cublasLtGetStatusString(CUBLAS_STATUS_NOT_SUPPORTED) ==
        std::string("the requested functionality is not supported"));
}

}  // namespace
}  // namespace capstan::kernels::cuda::emulation
