// MatrixProduct: one matrix product by cuBLASLt, with the algorithm that was chosen for it. A
// fully connected plan (fully_connected.h) runs it.
//
// cuBLASLt is column-major: a row-major [n, k] is a k x n matrix there. Without moving a matrix in
// memory, the three products of a fully connected op are therefore
//
//   forward           y^T  (units x n)      = op(weight: k x units)^T * x (k x n)
//   backward data     dx^T (k x n)          = weight (k x units) * dy (units x n)
//   backward weights  dW^T (k x units)      = x (k x n) * op(dy: units x n)^T
//
// Thread safety: one thread at a time uses it.
#ifndef CAPSTAN_KERNELS_CUDA_PLANS_MATRIX_PRODUCT_H_
#define CAPSTAN_KERNELS_CUDA_PLANS_MATRIX_PRODUCT_H_

#include <cublasLt.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/plans/device.h"
#include "kernels/op.h"

namespace capstan::kernels::cuda {

// The operation that cuBLASLt does besides the product.
enum class Epilogue { kNone, kBias, kBiasGradient };

struct ProductPointers {
  const void* a = nullptr;  // The left factor above: weight, weight or x.
  const void* b = nullptr;  // The right factor: x, dy, dy.
  void* d = nullptr;        // The result: y, dx, dweight.
  void* bias = nullptr;     // fp32 [units]: read by kBias, written by kBiasGradient.
};

class MatrixProduct {
 public:
  // Makes the product of `desc`, a fully connected op, with the epilogue. The candidates are the
  // algorithms that cuBLASLt offers, at most `count_max`; cuBLASLt expects the first to be the
  // best.
  // Errors: kUnimplemented  cuBLASLt offers none; kInternal and others of cuBLASLt.
  static absl::StatusOr<std::unique_ptr<MatrixProduct>> Create(Device& device, const OpDesc& desc,
                                                               Epilogue epilogue, int count_max);

  Epilogue epilogue() const { return epilogue_; }
  int candidates() const { return static_cast<int>(algorithms_.size()); }
  // The candidate's algorithm as hexadecimal digits. cuBLASLt promises that they mean the same
  // algorithm within one of its versions.
  std::string NameOf(int candidate) const;
  // Drops all other candidates.
  void Keep(int candidate) { algorithms_ = {algorithms_[static_cast<size_t>(candidate)]}; }
  int64_t workspace_bytes() const;  // The most that a remaining candidate needs.

  // Enqueues the product. REQUIRES: pointers are aligned to 16 bytes; the workspace is reserved.
  absl::Status Run(Device& device, const ProductPointers& pointers, int candidate = 0);

 private:
  struct DestroyDescriptor {
    void operator()(cublasLtMatmulDesc_t d) const { cublasLtMatmulDescDestroy(d); }
  };
  struct DestroyLayout {
    void operator()(cublasLtMatrixLayout_t d) const { cublasLtMatrixLayoutDestroy(d); }
  };
  using Layout = std::unique_ptr<cublasLtMatrixLayoutOpaque_t, DestroyLayout>;

  explicit MatrixProduct(Epilogue epilogue) : epilogue_(epilogue) {}
  absl::Status Describe(const OpDesc& desc, Compute compute);
  absl::Status Ask(Device& device, int count_max);
  absl::Status SetBias(void* bias);
  static absl::StatusOr<Layout> MakeLayout(cudaDataType type, int64_t rows, int64_t columns);

  const Epilogue epilogue_;
  std::unique_ptr<cublasLtMatmulDescOpaque_t, DestroyDescriptor> descriptor_;
  Layout a_, b_, d_;
  void* bias_ = nullptr;  // The pointer that the descriptor holds.
  std::vector<cublasLtMatmulHeuristicResult_t> algorithms_;
};

}  // namespace capstan::kernels::cuda

#endif  // CAPSTAN_KERNELS_CUDA_PLANS_MATRIX_PRODUCT_H_
