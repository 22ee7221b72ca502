// Kernels of rows: softmax cross-entropy and embeddings.
//
// Every launcher enqueues its kernels and returns the launch's error. A kernel reports labels and
// row numbers out of range in Faults, and reads nothing for them. No sum uses atomics, so every run
// gives the same bits. kernels/reference/matrix_ops.cc is the specification, with which
// tests/gpu:conformance_test compares them.
// Thread safety: any stream of any thread.
#ifndef CAPSTAN_KERNELS_CUDA_OWN_ROW_KERNELS_H_
#define CAPSTAN_KERNELS_CUDA_OWN_ROW_KERNELS_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/cuda/own/kernel_types.h"

namespace capstan::kernels::cuda {

// One warp handles one sample; logits [n, classes], labels [n].
//   forward   p = exp(logits - max) / sum;  loss = log(sum) + max - logits[label]
//   backward  dlogits = (p - [class == label]) * scale
// 12 B per element forward (it reads logits three times, from the cache except the first time),
// 8 B backward. A label out of range gives the loss NaN and a target of 0.
struct SoftmaxArgs {
  Element type = Element::kFloat;  // The type of logits and dlogits.
  int64_t n = 0;
  int classes = 1;
  const void* logits = nullptr;
  const int32_t* labels = nullptr;
  float* probabilities = nullptr;  // [n, classes]; forward writes it, backward reads it.
  float* loss = nullptr;           // [n]
  float scale = 1.0f;
  void* dlogits = nullptr;
  Faults* faults = nullptr;
};
cudaError_t LaunchSoftmaxForward(const SoftmaxArgs& args, cudaStream_t stream);
cudaError_t LaunchSoftmaxBackward(const SoftmaxArgs& args, cudaStream_t stream);

// row_numbers [count] are whole fp32 numbers in [0, rows).
//   forward   y[i] = weight[row_numbers[i]], rows of `dim`; 0 for a row number out of range
//   backward  dweight = 0, then dweight[r] = sum of dy[i] with row_numbers[i] == r, in the order
//             of i: the kernels sort the pairs (row, i) first.
// Forward 8 B per element of y. Backward 4 B per element of dy and of dweight, and
// log2(count)^2 / 2 passes over the 8 B pairs; one launch makes up to eleven passes.
struct EmbeddingArgs {
  Element type = Element::kFloat;  // The type of weight, y and dy.
  int64_t count = 0;               // The number of row numbers.
  int dim = 1;
  int64_t rows = 1;
  const float* row_numbers = nullptr;
  const void* weight = nullptr;
  void* y = nullptr;
  const void* dy = nullptr;
  float* dweight = nullptr;  // [rows, dim]
  void* scratch = nullptr;   // Backward only: EmbeddingScratchBytes(count).
  Faults* faults = nullptr;
};
int64_t EmbeddingScratchBytes(int64_t count);
cudaError_t LaunchEmbeddingForward(const EmbeddingArgs& args, cudaStream_t stream);
cudaError_t LaunchEmbeddingBackward(const EmbeddingArgs& args, cudaStream_t stream);

}  // namespace capstan::kernels::cuda

#endif  // CAPSTAN_KERNELS_CUDA_OWN_ROW_KERNELS_H_
