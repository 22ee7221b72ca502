// Mlp: fully connected layers with ReLU between them, on rows of a batch.
//
// Layer i computes y = x W^T + b with W [out, in] (as kernels/op.h lays it out) and, unless it is
// the last of an Mlp with Output::kLinear, max(y, 0); NaN stays NaN. W and b start uniform in
// [-1/sqrt(in), 1/sqrt(in)), as the layers of dense models do.
//
// Every element of every result is summed in ascending order of what it is summed over, one
// addition after the other in fp32: no result depends on the other rows of the batch, on its
// number of rows, or on what the compiler vectorises.
// Thread safety: thread-compatible.
#ifndef CAPSTAN_COMMON_SPARSE_MODELS_MLP_H_
#define CAPSTAN_COMMON_SPARSE_MODELS_MLP_H_

#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/sparse_models/sparse_model.h"

namespace capstan {

class Mlp {
 public:
  enum class Output { kLinear, kRelu };

  // No layers. Forward and Backward may not be called.
  Mlp() = default;
  // Widths of the input and of each layer's output, at least two. Appends the tensors
  // "<name>.<layer>.weight" and ".bias" to shape->dense.
  Mlp(absl::string_view name, const std::vector<int64_t>& widths, Output output,
      SparseShape* shape);

  bool empty() const { return layers_.empty(); }

  // in [n, first width] -> [n, last width], valid until the next call.
  const float* Forward(int64_t n, const float* in, const float* dense);

  // REQUIRES: Forward was called last with the same n, in and dense.
  //   out_gradient     [n, last width]  of the loss by the output
  //   in_gradient      [n, first width]  overwritten; null: not wanted
  //   dense_gradients  the model's; the gradients of these layers are added to it
  void Backward(int64_t n, const float* in, const float* dense, const float* out_gradient,
                float* in_gradient, float* dense_gradients);

 private:
  struct Layer {
    int64_t in = 0, out = 0;
    int64_t weight = 0, bias = 0;  // Offsets in the dense parameters.
    bool relu = false;
    std::vector<float> outputs;    // [n, out].
    std::vector<float> gradients;  // [n, out], of what ReLU reads.
  };

  std::vector<Layer> layers_;
  std::vector<float> transposed_;  // A layer's W^T.
};

}  // namespace capstan

#endif  // CAPSTAN_COMMON_SPARSE_MODELS_MLP_H_
