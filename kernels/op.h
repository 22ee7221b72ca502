// OpDesc: one arithmetic operation with its shapes and attributes; what a backend prepares and
// runs.
//
// Conventions of every op:
//   * Images are [n, h, w, c] (NHWC), matrices [n, k]; fp32, accumulated in fp32; labels are
//     int32 [n], targets (labels that are numbers) fp32 [n, k].
//   * Convolution weights are [filters, kernel, kernel, c_in] (OHWI); fully connected ones
//     [units, k].
//   * Backward ops overwrite their outputs (they do not accumulate).
//   * The same inputs give the same bits on every run with the same thread count.
//
// Inputs -> outputs, in the order of Run's spans ([bias] where has_bias, [weights], fp32 [k], where
// has_weights):
//   kConvolutionForward            x, weight, [bias]        -> y (y = relu(..) if fuse_relu)
//   kConvolutionBackwardData       dy, weight               -> dx
//   kConvolutionBackwardWeights    x, dy                    -> dweight, [dbias]
//   kMaxPoolForward                x                        -> y, index (int32 [as y]: the winner
//                                     in its window, as row-major kernel offset)
//   kMaxPoolBackward               dy, index                -> dx
//   kAveragePoolForward            x                        -> y (padding is left out of the mean)
//   kAveragePoolBackward           dy                       -> dx
//   kFullyConnectedForward         x [n,k], weight, [bias]  -> y [n,units] (relu if fuse_relu)
//   kFullyConnectedBackwardData    dy, weight               -> dx
//   kFullyConnectedBackwardWeights x, dy                    -> dweight, [dbias]
//   kReluForward                   x                        -> y (may be in place)
//   kReluBackward                  y, dy                    -> dx (dx = y > 0 ? dy : 0; may be in
//                                     place of dy)
//   kBatchNormForward              x, scale, shift, [addend] -> y, mean, variance (of the batch,
//                                     [c]; biased variance)
//   kBatchNormInference            x, scale, shift, mean, variance, [addend] -> y
//   kBatchNormBackward             x, dy, scale, mean, variance, [shift | y], [dy2] -> dx, dscale,
//                                     dshift, [dsum]
//     fuse_relu: y = relu(..); backward's gradients are those of dy where relu's argument was > 0
//     and of 0 elsewhere, found again from x and shift
//     has_addend, only with fuse_relu: y = relu(.. + addend), may be in place of addend; backward
//     sees it at y > 0 instead, and gives dsum = y > 0 ? dy : 0, the gradient of addend, which may
//     be in place of dy
//     has_dy2, only with has_addend: y has been read twice, and dy + dy2 is its gradient; dsum may
//     be in place of either
//   kAdd                           a, b                     -> y (may be in place of a)
//   kDropoutForward                x, key (int32 [2])       -> y (x / (1 - rate) or 0; element i is
//                                     kept iff PhiloxWord(key, i) >= rate * 2^32; WordsOfKey)
//   kDropoutBackward               dy, key                  -> dx (same key: same mask)
//   kSoftmaxCrossEntropyForward    logits [n,k], labels, [weights] -> probabilities [n,k], loss [n]
//   kSoftmaxCrossEntropyBackward   probabilities, labels, [weights] -> dlogits (times
//                                     RunOptions::scale)
//     weights: of classes; the loss of a sample is multiplied by that of its label
//   kOutputLossForward             logits [n,k], targets, [weights] -> loss [n]
//   kOutputLossBackward            logits, targets, [weights] -> dlogits (times RunOptions::scale)
//     the mean over k of OpDesc::loss; weights, only with kSigmoid: of positive targets
//   kEmbeddingForward              rows-as-fp32 [n,k], weight [rows,dim] -> y [n,k*dim]
//   kEmbeddingBackward             rows-as-fp32 [n,k], dy   -> dweight (zero where no row was read)
// Thread safety: a value.
#ifndef CAPSTAN_KERNELS_OP_H_
#define CAPSTAN_KERNELS_OP_H_

#include <cstdint>
#include <string>

namespace capstan::kernels {

enum class OpKind {
  kConvolutionForward,
  kConvolutionBackwardData,
  kConvolutionBackwardWeights,
  kMaxPoolForward,
  kMaxPoolBackward,
  kAveragePoolForward,
  kAveragePoolBackward,
  kFullyConnectedForward,
  kFullyConnectedBackwardData,
  kFullyConnectedBackwardWeights,
  kReluForward,
  kReluBackward,
  kBatchNormForward,
  kBatchNormInference,
  kBatchNormBackward,
  kAdd,
  kDropoutForward,
  kDropoutBackward,
  kSoftmaxCrossEntropyForward,
  kSoftmaxCrossEntropyBackward,
  kOutputLossForward,
  kOutputLossBackward,
  kEmbeddingForward,
  kEmbeddingBackward,
};

// The loss of one output y with target t, and its slope by y.
enum class OutputLoss {
  kSquared,   // (y - t)^2.
  kHuber,     // d = loss_parameter > 0: (y - t)^2 / 2 if |y - t| <= d, else d * (|y - t| - d / 2).
  kQuantile,  // q = loss_parameter, in (0, 1): q * (t - y) if y < t, else (1 - q) * (y - t). The
              // slope at y = t is 0.
  // y is a logit, p = 1 / (1 + exp(-y)): -(w * t * log(p) + (1 - t) * log(1 - p)), w the weight.
  kSigmoid,
};

// One descriptor for all kinds; a field that a kind does not use is ignored. Input image sizes are
// those of the forward op's x, also in backward descriptors.
struct OpDesc {
  OpKind kind = OpKind::kAdd;
  int64_t n = 0;         // Batch, >= 0.
  int64_t h = 1, w = 1;  // Image height and width, >= 1. 1 for matrices.
  int64_t c = 1;  // Channels, or the second dimension of a matrix (embedding: indices a sample).
  // Of y. Fully connected: out_c = units. Embedding: out_c = dim.
  int64_t out_h = 1, out_w = 1, out_c = 1;
  int64_t kernel = 1, stride = 1, padding = 0;  // Square windows.
  bool has_bias = false;
  bool fuse_relu = false;
  bool has_addend = false;    // Batch norm.
  bool has_dy2 = false;       // Batch norm, backward.
  float epsilon = 1e-5f;      // Batch norm.
  float dropout_rate = 0.0f;  // [0, 1).
  int64_t rows = 0;           // Embedding.
  bool has_weights = false;   // Softmax cross-entropy, output loss.
  OutputLoss loss = OutputLoss::kSquared;
  float loss_parameter = 0.0f;

  friend auto operator<=>(const OpDesc&, const OpDesc&) = default;
};

// Only backends that compute in the host's memory have it: losses of numbers, weights of losses.
inline bool IsHostOnly(const OpDesc& desc) {
  return desc.has_weights || desc.kind == OpKind::kOutputLossForward ||
         desc.kind == OpKind::kOutputLossBackward;
}

// "convolution_forward n=64 28x28x1 -> 24x24x20 kernel 5 stride 1 padding 0".
std::string ToString(const OpDesc& desc);

}  // namespace capstan::kernels

#endif  // CAPSTAN_KERNELS_OP_H_
