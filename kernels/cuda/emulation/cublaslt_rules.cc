#include "kernels/cuda/emulation/cublaslt_rules.h"

#include <algorithm>
#include <bit>

namespace capstan::kernels::cuda::emulation {
namespace {

constexpr uint64_t kFirstAlgorithm = 0x4341505354414e00;  // Not 0: no algorithm has all zeros.
constexpr uint64_t kScratchBytes = 24 << 10;
constexpr uintptr_t kWorkspaceAlignment = 256;
constexpr uint64_t kBiasAlignmentMax = 16;

bool IsTranspose(int32_t operation) { return operation == CUBLAS_OP_T || operation == CUBLAS_OP_C; }

bool IsSound(const MatmulLayout& layout) {
  return layout.rows > 0 && layout.columns > 0 && layout.ld > 0 &&
         static_cast<uint64_t>(layout.ld) >= layout.rows;
}

// Whether the sizes are those of one product.
bool IsSound(const MatmulProblem& p) {
  for (const int32_t transpose : {p.operation.transpose_a, p.operation.transpose_b}) {
    if (transpose != CUBLAS_OP_N && !IsTranspose(transpose)) return false;
  }
  if (!IsSound(p.a) || !IsSound(p.b) || !IsSound(p.c) || !IsSound(p.d)) return false;
  const bool ta = IsTranspose(p.operation.transpose_a);
  const bool tb = IsTranspose(p.operation.transpose_b);
  return (ta ? p.a.columns : p.a.rows) == p.d.rows &&
         (tb ? p.b.rows : p.b.columns) == p.d.columns &&
         (ta ? p.a.rows : p.a.columns) == (tb ? p.b.columns : p.b.rows) && p.c.rows == p.d.rows &&
         p.c.columns == p.d.columns;
}

bool KnowsTypes(const MatmulProblem& p) {
  const bool tf32 = p.operation.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
  if (!tf32 && p.operation.compute != CUBLAS_COMPUTE_32F) return false;
  if (p.operation.scale != CUDA_R_32F || p.a.type != p.b.type || p.c.type != p.d.type) return false;
  if (p.a.type == CUDA_R_32F) return p.d.type == CUDA_R_32F;
  const bool half = p.a.type == CUDA_R_16BF || p.a.type == CUDA_R_16F;
  return half && !tf32 && (p.d.type == p.a.type || p.d.type == CUDA_R_32F);
}

bool KnowsEpilogue(const MatmulProblem& p) {
  const bool fp32_bias =
      (p.operation.bias_type == -1 ? p.d.type : p.operation.bias_type) == CUDA_R_32F;
  switch (p.operation.epilogue) {
    case CUBLASLT_EPILOGUE_DEFAULT:
      return true;
    case CUBLASLT_EPILOGUE_BIAS:
      return fp32_bias && p.d.type == CUDA_R_32F;
    case CUBLASLT_EPILOGUE_BGRADB:
      return fp32_bias && p.d.type == CUDA_R_32F &&
             (p.a.type != CUDA_R_32F || p.operation.compute == CUBLAS_COMPUTE_32F_FAST_TF32);
    default:
      return false;
  }
}

// What an algorithm is made for.
uint64_t PurposeOf(const MatmulProblem& p) {
  uint64_t purpose = p.operation.epilogue;
  for (const uint64_t part : {static_cast<uint64_t>(p.operation.compute),
                              static_cast<uint64_t>(p.a.type), static_cast<uint64_t>(p.d.type)}) {
    purpose = purpose << 8 | part;
  }
  return purpose;
}

bool IsAligned(const void* pointer, uint64_t alignment) {
  return reinterpret_cast<uintptr_t>(pointer) % alignment == 0;
}

// Of null: as much as counts.
uint64_t BiasAlignment(const void* bias) {
  const auto address = reinterpret_cast<uintptr_t>(bias);
  return std::min(kBiasAlignmentMax, uint64_t{1} << std::min(std::countr_zero(address), 8));
}

Matrix MatrixOf(const MatmulLayout& layout, const void* data) {
  return {const_cast<void*>(data), layout.type, static_cast<int64_t>(layout.rows),
          static_cast<int64_t>(layout.columns), layout.ld};
}

}  // namespace

cublasStatus_t CheckProblem(const MatmulProblem& problem) {
  if (!IsSound(problem)) return CUBLAS_STATUS_INVALID_VALUE;
  return KnowsTypes(problem) && KnowsEpilogue(problem) ? CUBLAS_STATUS_SUCCESS
                                                       : CUBLAS_STATUS_NOT_SUPPORTED;
}

int OfferAlgorithms(const MatmulProblem& problem, const MatmulPreference& preference, int count_max,
                    cublasLtMatmulHeuristicResult_t* results) {
  int count = 0;
  const auto add = [&](uint64_t number, uint64_t workspace_bytes, cublasStatus_t state) {
    if (count == count_max || workspace_bytes > preference.workspace_bytes_max) return;
    cublasLtMatmulHeuristicResult_t& result = results[count++];
    result = {};
    PutWords(MatmulAlgorithm{.number = kFirstAlgorithm + number,
                             .workspace_bytes = workspace_bytes,
                             .purpose = PurposeOf(problem),
                             .alignments = preference.alignments,
                             .bias_alignment = BiasAlignment(problem.operation.bias)},
             &result.algo);
    result.workspaceSize = static_cast<size_t>(workspace_bytes);
    result.state = state;
    result.wavesCount = 1.0f;
  };
  add(0, kScratchBytes, CUBLAS_STATUS_SUCCESS);
  add(1, 0, CUBLAS_STATUS_SUCCESS);
  add(2, 0, CUBLAS_STATUS_SUCCESS);
  add(3, 0, CUBLAS_STATUS_NOT_SUPPORTED);
  return count;
}

cublasStatus_t CheckRun(const MatmulProblem& problem, const MatmulPointers& p,
                        const MatmulAlgorithm& algorithm) {
  if (p.a == nullptr || p.b == nullptr || p.d == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  if (p.c == p.d && problem.c.ld != problem.d.ld) return CUBLAS_STATUS_INVALID_VALUE;
  if (problem.operation.epilogue != CUBLASLT_EPILOGUE_DEFAULT &&
      problem.operation.bias == nullptr) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  if (algorithm.number < kFirstAlgorithm || algorithm.number > kFirstAlgorithm + 2 ||
      algorithm.purpose != PurposeOf(problem)) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  if (p.workspace_bytes < algorithm.workspace_bytes ||
      (p.workspace_bytes > 0 && p.workspace == nullptr) ||
      !IsAligned(p.workspace, kWorkspaceAlignment)) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  const std::array<const void*, 4> operands = {p.a, p.b, p.c, p.d};
  for (size_t i = 0; i < operands.size(); ++i) {
    if (!IsAligned(operands[i], algorithm.alignments[i])) return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  return IsAligned(problem.operation.bias, algorithm.bias_alignment) ? CUBLAS_STATUS_SUCCESS
                                                                     : CUBLAS_STATUS_NOT_SUPPORTED;
}

HostProduct ProductOf(const MatmulProblem& problem, const MatmulPointers& p,
                      const MatmulAlgorithm& algorithm) {
  const MatmulOperation& operation = problem.operation;
  return {.tf32 = operation.compute == CUBLAS_COMPUTE_32F_FAST_TF32,
          .a_transposed = IsTranspose(operation.transpose_a),
          .b_transposed = IsTranspose(operation.transpose_b),
          .a = MatrixOf(problem.a, p.a),
          .b = MatrixOf(problem.b, p.b),
          .c = MatrixOf(problem.c, p.c),
          .d = MatrixOf(problem.d, p.d),
          .epilogue = operation.epilogue == CUBLASLT_EPILOGUE_BIAS ? ProductEpilogue::kBias
                      : operation.epilogue == CUBLASLT_EPILOGUE_BGRADB
                          ? ProductEpilogue::kBiasGradientB
                          : ProductEpilogue::kNone,
          .bias = operation.bias,
          .workspace = p.workspace,
          .workspace_bytes = static_cast<size_t>(algorithm.workspace_bytes)};
}

}  // namespace capstan::kernels::cuda::emulation
