#include "kernels/cuda/plans/matrix_product.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "kernels/cuda/plans/cuda_plan.h"
#include "kernels/cuda/plans/status.h"

namespace capstan::kernels::cuda {
namespace {

// The shape of a column-major matrix.
struct Extent {
  int64_t rows, columns;
};
struct Shapes {
  Extent a, b, d;
  bool a_transposed, b_transposed;
};

Shapes ShapesOf(const OpDesc& desc) {
  const Extent weight = {desc.c, desc.out_c};
  const Extent x = {desc.c, desc.n};
  const Extent y = {desc.out_c, desc.n};
  switch (desc.kind) {
    case OpKind::kFullyConnectedBackwardData:
      return {weight, y, x, false, false};
    case OpKind::kFullyConnectedBackwardWeights:
      return {x, y, weight, false, true};
    default:
      return {weight, x, y, true, false};
  }
}

struct DestroyPreference {
  void operator()(cublasLtMatmulPreference_t p) const { cublasLtMatmulPreferenceDestroy(p); }
};
using Preference = std::unique_ptr<cublasLtMatmulPreferenceOpaque_t, DestroyPreference>;

template <typename T>
absl::Status SetAttribute(cublasLtMatmulDesc_t descriptor, cublasLtMatmulDescAttributes_t name,
                          const T& value) {
  CAPSTAN_CUBLAS_CHECK(cublasLtMatmulDescSetAttribute(descriptor, name, &value, sizeof(value)),
                       "describing a product");
  return absl::OkStatus();
}

template <typename T>
absl::Status SetAttribute(const Preference& preference, cublasLtMatmulPreferenceAttributes_t name,
                          const T& value) {
  CAPSTAN_CUBLAS_CHECK(
      cublasLtMatmulPreferenceSetAttribute(preference.get(), name, &value, sizeof(value)),
      "setting a preference");
  return absl::OkStatus();
}

absl::StatusOr<Preference> PreferenceOf(const CudaOptions& options) {
  cublasLtMatmulPreference_t raw = nullptr;
  CAPSTAN_CUBLAS_CHECK(cublasLtMatmulPreferenceCreate(&raw), "creating a preference");
  Preference preference(raw);
  const auto bytes =
      static_cast<uint64_t>(std::min(options.workspace_bytes_max, kSureWorkspaceBytesMax));
  CAPSTAN_RETURN_IF_ERROR(
      SetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, bytes));
  // Partial sums are never rounded to 16 bits.
  const uint32_t reduction = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  CAPSTAN_RETURN_IF_ERROR(
      SetAttribute(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, reduction));
  const auto alignment = static_cast<uint32_t>(kAlignmentBytes);
  for (const auto name :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
    CAPSTAN_RETURN_IF_ERROR(SetAttribute(preference, name, alignment));
  }
  return preference;
}

}  // namespace

absl::StatusOr<MatrixProduct::Layout> MatrixProduct::MakeLayout(cudaDataType type, int64_t rows,
                                                                int64_t columns) {
  cublasLtMatrixLayout_t layout = nullptr;
  CAPSTAN_CUBLAS_CHECK(cublasLtMatrixLayoutCreate(&layout, type, static_cast<uint64_t>(rows),
                                                  static_cast<uint64_t>(columns), rows),
                       "describing a matrix");
  return Layout(layout);
}

absl::StatusOr<std::unique_ptr<MatrixProduct>> MatrixProduct::Create(Device& device,
                                                                     const OpDesc& desc,
                                                                     Epilogue epilogue,
                                                                     int count_max) {
  std::unique_ptr<MatrixProduct> product(new MatrixProduct(epilogue));
  CAPSTAN_RETURN_IF_ERROR(product->Describe(desc, device.options().compute));
  CAPSTAN_RETURN_IF_ERROR(product->Ask(device, count_max));
  return product;
}

absl::Status MatrixProduct::Describe(const OpDesc& desc, Compute compute) {
  const cudaDataType factors = compute == Compute::kBf16   ? CUDA_R_16BF
                               : compute == Compute::kFp16 ? CUDA_R_16F
                                                           : CUDA_R_32F;
  // Gradients of parameters are fp32 in every mode.
  const bool gradient = desc.kind == OpKind::kFullyConnectedBackwardWeights;
  const cudaDataType result = gradient ? CUDA_R_32F : factors;
  cublasLtMatmulDesc_t raw = nullptr;
  const cublasComputeType_t arithmetic =
      compute == Compute::kTf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
  CAPSTAN_CUBLAS_CHECK(cublasLtMatmulDescCreate(&raw, arithmetic, CUDA_R_32F),
                       "describing a product");
  descriptor_.reset(raw);
  const Shapes shapes = ShapesOf(desc);
  const cublasOperation_t op_a = shapes.a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
  const cublasOperation_t op_b = shapes.b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
  CAPSTAN_RETURN_IF_ERROR(SetAttribute(raw, CUBLASLT_MATMUL_DESC_TRANSA, op_a));
  CAPSTAN_RETURN_IF_ERROR(SetAttribute(raw, CUBLASLT_MATMUL_DESC_TRANSB, op_b));
  CAPSTAN_ASSIGN_OR_RETURN(a_, MakeLayout(factors, shapes.a.rows, shapes.a.columns));
  CAPSTAN_ASSIGN_OR_RETURN(b_, MakeLayout(factors, shapes.b.rows, shapes.b.columns));
  CAPSTAN_ASSIGN_OR_RETURN(d_, MakeLayout(result, shapes.d.rows, shapes.d.columns));
  if (epilogue_ == Epilogue::kNone) return absl::OkStatus();
  const cublasLtEpilogue_t epilogue =
      epilogue_ == Epilogue::kBias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_BGRADB;
  CAPSTAN_RETURN_IF_ERROR(SetAttribute(raw, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue));
  const cudaDataType bias = CUDA_R_32F;
  return SetAttribute(raw, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, bias);
}

absl::Status MatrixProduct::SetBias(void* bias) {
  if (epilogue_ == Epilogue::kNone || bias == bias_) return absl::OkStatus();
  CAPSTAN_RETURN_IF_ERROR(SetAttribute(descriptor_.get(), CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias));
  bias_ = bias;
  return absl::OkStatus();
}

absl::Status MatrixProduct::Ask(Device& device, int count_max) {
  CAPSTAN_ASSIGN_OR_RETURN(const Preference preference, PreferenceOf(device.options()));
  // The heuristic assumes that later bias pointers are aligned like this one. The workspace is
  // aligned to 256 bytes, so this one is aligned to kAlignmentBytes only.
  CAPSTAN_RETURN_IF_ERROR(SetBias(static_cast<char*>(device.workspace()) + kAlignmentBytes));
  algorithms_.resize(static_cast<size_t>(count_max));
  int found = 0;
  CAPSTAN_CUBLAS_CHECK(cublasLtMatmulAlgoGetHeuristic(
                           device.cublaslt(), descriptor_.get(), a_.get(), b_.get(), d_.get(),
                           d_.get(), preference.get(), count_max, algorithms_.data(), &found),
                       "asking cuBLASLt for algorithms");
  algorithms_.resize(static_cast<size_t>(found));
  std::erase_if(algorithms_, [](const cublasLtMatmulHeuristicResult_t& result) {
    return result.state != CUBLAS_STATUS_SUCCESS;
  });
  if (algorithms_.empty()) return absl::UnimplementedError("cuBLASLt offers no algorithm");
  return absl::OkStatus();
}

std::string MatrixProduct::NameOf(int candidate) const {
  std::string name;
  for (const uint64_t word : algorithms_[static_cast<size_t>(candidate)].algo.data) {
    absl::StrAppend(&name, name.empty() ? "" : " ", absl::Hex(word));
  }
  return name;
}

int64_t MatrixProduct::workspace_bytes() const {
  size_t bytes = 0;
  for (const auto& algorithm : algorithms_) bytes = std::max(bytes, algorithm.workspaceSize);
  return static_cast<int64_t>(bytes);
}

absl::Status MatrixProduct::Run(Device& device, const ProductPointers& p, int candidate) {
  CAPSTAN_RETURN_IF_ERROR(SetBias(p.bias));
  const float alpha = 1.0f;
  const float beta = 0.0f;
  const auto& algorithm = algorithms_[static_cast<size_t>(candidate)];
  CAPSTAN_CUBLAS_CHECK(
      cublasLtMatmul(device.cublaslt(), descriptor_.get(), &alpha, p.a, a_.get(), p.b, b_.get(),
                     &beta, p.d, d_.get(), p.d, d_.get(), &algorithm.algo, device.workspace(),
                     algorithm.workspaceSize, device.stream()),
      "running a product");
  return absl::OkStatus();
}

}  // namespace capstan::kernels::cuda
