// Kernels of rows: softmax cross-entropy and embeddings.
//
// Every launcher enqueues and returns the launch's error. Labels and row numbers out of range are
// reported in Faults, and read nothing. The same bits on every run: nothing is added atomically.
// Specification: kernels/reference/matrix_ops.h; compared by tests/gpu:conformance_test.
// Thread safety: any stream of any thread.
#ifndef CAPSTAN_KERNELS_CUDA_ROW_KERNELS_H_
#define CAPSTAN_KERNELS_CUDA_ROW_KERNELS_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/cuda/kernel_types.h"

namespace capstan::kernels::cuda {

// One warp a sample; logits [n, classes], labels [n].
//   forward   p = exp(logits - max) / sum;  loss = log(sum) + max - logits[label]
//   backward  dlogits = (p - [class == label]) * scale
// 12 B an element forward (logits three times, from the cache but for the first), 8 B backward.
// A label out of range gives the loss NaN and a target of 0.
struct SoftmaxArgs {
  Element type = Element::kFloat;  // Of logits and dlogits.
  int64_t n = 0;
  int classes = 1;
  const void* logits = nullptr;
  const int32_t* labels = nullptr;
  float* probabilities = nullptr;  // [n, classes]: forward written, backward read.
  float* loss = nullptr;           // [n]
  float scale = 1.0f;
  void* dlogits = nullptr;
  Faults* faults = nullptr;
};
cudaError_t LaunchSoftmaxForward(const SoftmaxArgs& args, cudaStream_t stream);
cudaError_t LaunchSoftmaxBackward(const SoftmaxArgs& args, cudaStream_t stream);

// row_numbers [count] are whole fp32 numbers in [0, rows).
//   forward   y[i] = weight[row_numbers[i]], rows of `dim`; 0 for one out of range
//   backward  dweight = 0, then dweight[r] = sum of dy[i] with row_numbers[i] == r, in the order
//             of i: the pairs (row, i) are sorted first.
// Forward 8 B an element of y; backward 4 B of dy and of dweight, and log2(count)^2 / 2 passes
// over the 8 B pairs, of which one launch makes up to eleven.
struct EmbeddingArgs {
  Element type = Element::kFloat;  // Of weight, y and dy.
  int64_t count = 0;               // Row numbers.
  int dim = 1;
  int64_t rows = 1;
  const float* row_numbers = nullptr;
  const void* weight = nullptr;
  void* y = nullptr;
  const void* dy = nullptr;
  float* dweight = nullptr;  // [rows, dim]
  void* scratch = nullptr;   // Backward: EmbeddingScratchBytes(count).
  Faults* faults = nullptr;
};
int64_t EmbeddingScratchBytes(int64_t count);
cudaError_t LaunchEmbeddingForward(const EmbeddingArgs& args, cudaStream_t stream);
cudaError_t LaunchEmbeddingBackward(const EmbeddingArgs& args, cudaStream_t stream);

}  // namespace capstan::kernels::cuda

#endif  // CAPSTAN_KERNELS_CUDA_ROW_KERNELS_H_
