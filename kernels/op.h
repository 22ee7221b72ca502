// OpDesc: describes one arithmetic operation with its shapes and attributes. A backend prepares it
// and runs it (backend.h).
//
// Conventions of every op:
//   * Images are [n, h, w, c] (NHWC), matrices [n, k]; fp32 unless the backend has another
//     TensorType(), accumulated in fp32 or wider; labels are int32 [n], targets (labels that are
//     numbers) fp32 [n, k].
//   * Convolution weights are [filters, kernel, kernel, c_in] (OHWI); fully connected ones
//     [units, k].
//   * Backward ops overwrite their outputs (they do not accumulate).
//   * The same inputs give the same bits on every run with the same thread count.
//
// Inputs -> outputs, in the order of Run's spans (an operand in brackets is optional: [bias] is
// there if has_bias, [weights], fp32 [k], if has_weights):
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
//   kActivationForward             x                        -> y, the activation of x
//   kActivationBackward            x, dy                    -> dx (may be in place of dy)
//   kBatchNormForward              x, scale, shift, [addend] -> y, mean, variance (of the batch,
//                                     [c]; biased variance)
//   kBatchNormInference            x, scale, shift, mean, variance, [addend] -> y
//   kBatchNormBackward             x, dy, scale, mean, variance, [shift | y], [dy2] -> dx, dscale,
//                                     dshift, [dsum]
//     fuse_relu: y = relu(..). Backward uses dy where relu's argument was > 0, and 0 elsewhere; it
//     computes that argument again from x and shift.
//     has_addend, only with fuse_relu: y = relu(.. + addend), which may be in place of addend.
//     Backward tests y > 0 instead, and outputs dsum = y > 0 ? dy : 0, the gradient of addend,
//     which may be in place of dy.
//     has_dy2, only with has_addend: two ops have read y, and its gradient is dy + dy2; dsum may
//     be in place of either.
//   kLayerNormForward              x, scale, shift          -> y, mean, variance (of the c values
//                                     of each position, [n*h*w]; biased variance)
//   kLayerNormBackward             x, dy, scale, mean, variance -> dx, dscale, dshift
//   kRmsNormForward                x, scale                 -> y, mean_square (of the c values of
//                                     each position, [n*h*w])
//   kRmsNormBackward               x, dy, scale, mean_square -> dx, dscale
//   kAdd                           a, b                     -> y (may be in place of a)
//   kDropoutForward                x, key (int32 [2] of WordsOfKey) -> y (x / (1 - rate) or 0;
//                                     element i is kept iff PhiloxWord(key, i) >= rate * 2^32)
//   kDropoutBackward               dy, key                  -> dx (same key: same mask)
//   kSoftmaxCrossEntropyForward    logits [n,k], labels, [weights] -> probabilities [n,k], loss [n]
//   kSoftmaxCrossEntropyBackward   probabilities, labels, [weights] -> dlogits (times
//                                     RunOptions::scale)
//     weights: one for each class; the loss of a sample is multiplied by the weight of its label
//   kOutputLossForward             logits [n,k], targets, [weights] -> loss [n]
//   kOutputLossBackward            logits, targets, [weights] -> dlogits (times RunOptions::scale)
//     the loss of a sample is the mean of OpDesc::loss over k; weights, only with kSigmoid,
//     multiply the terms of positive targets
//   kEmbeddingForward              rows-as-fp32 [n,k], weight [rows,dim] -> y [n,k*dim]
//   kEmbeddingBackward             rows-as-fp32 [n,k], dy   -> dweight (zero where no row was read)
// Thread safety: a value.
#ifndef CAPSTAN_KERNELS_OP_H_
#define CAPSTAN_KERNELS_OP_H_

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>

#include "kernels/activation.h"

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
  kActivationForward,
  kActivationBackward,
  kBatchNormForward,
  kBatchNormInference,
  kBatchNormBackward,
  kLayerNormForward,
  kLayerNormBackward,
  kRmsNormForward,
  kRmsNormBackward,
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

// The part of an op that messages show beside its name and batch size (op.cc).
enum class Shown { kImage, kWindow, kUnits, kEpsilon, kActivation, kRate, kClasses, kLoss, kRows };

struct OpTraits {
  OpKind kind;
  const char* name;
  Shown shown = Shown::kImage;
};
inline constexpr OpTraits kOpTraits[] = {
    {OpKind::kConvolutionForward, "convolution_forward", Shown::kWindow},
    {OpKind::kConvolutionBackwardData, "convolution_backward_data", Shown::kWindow},
    {OpKind::kConvolutionBackwardWeights, "convolution_backward_weights", Shown::kWindow},
    {OpKind::kMaxPoolForward, "max_pool_forward", Shown::kWindow},
    {OpKind::kMaxPoolBackward, "max_pool_backward", Shown::kWindow},
    {OpKind::kAveragePoolForward, "average_pool_forward", Shown::kWindow},
    {OpKind::kAveragePoolBackward, "average_pool_backward", Shown::kWindow},
    {OpKind::kFullyConnectedForward, "fully_connected_forward", Shown::kUnits},
    {OpKind::kFullyConnectedBackwardData, "fully_connected_backward_data", Shown::kUnits},
    {OpKind::kFullyConnectedBackwardWeights, "fully_connected_backward_weights", Shown::kUnits},
    {OpKind::kReluForward, "relu_forward"},
    {OpKind::kReluBackward, "relu_backward"},
    {OpKind::kActivationForward, "activation_forward", Shown::kActivation},
    {OpKind::kActivationBackward, "activation_backward", Shown::kActivation},
    {OpKind::kBatchNormForward, "batch_norm_forward", Shown::kEpsilon},
    {OpKind::kBatchNormInference, "batch_norm_inference", Shown::kEpsilon},
    {OpKind::kBatchNormBackward, "batch_norm_backward", Shown::kEpsilon},
    {OpKind::kLayerNormForward, "layer_norm_forward", Shown::kEpsilon},
    {OpKind::kLayerNormBackward, "layer_norm_backward", Shown::kEpsilon},
    {OpKind::kRmsNormForward, "rms_norm_forward", Shown::kEpsilon},
    {OpKind::kRmsNormBackward, "rms_norm_backward", Shown::kEpsilon},
    {OpKind::kAdd, "add"},
    {OpKind::kDropoutForward, "dropout_forward", Shown::kRate},
    {OpKind::kDropoutBackward, "dropout_backward", Shown::kRate},
    {OpKind::kSoftmaxCrossEntropyForward, "softmax_cross_entropy_forward", Shown::kClasses},
    {OpKind::kSoftmaxCrossEntropyBackward, "softmax_cross_entropy_backward", Shown::kClasses},
    {OpKind::kOutputLossForward, "output_loss_forward", Shown::kLoss},
    {OpKind::kOutputLossBackward, "output_loss_backward", Shown::kLoss},
    {OpKind::kEmbeddingForward, "embedding_forward", Shown::kRows},
    {OpKind::kEmbeddingBackward, "embedding_backward", Shown::kRows},
};

constexpr bool AreOpTraitsInOrder() {
  for (size_t i = 0; i < std::size(kOpTraits); ++i) {
    if (kOpTraits[i].kind != static_cast<OpKind>(i)) return false;
  }
  return true;
}
static_assert(AreOpTraitsInOrder());

// The loss of one output y with target t. The backward op computes its derivative by y.
enum class OutputLoss {
  kSquared,   // (y - t)^2.
  kHuber,     // d = loss_parameter > 0: (y - t)^2 / 2 if |y - t| <= d, else d * (|y - t| - d / 2).
  kQuantile,  // q = loss_parameter, in (0, 1): q * (t - y) if y < t, else (1 - q) * (y - t). The
              // slope at y = t is 0.
  // y is a logit, p = 1 / (1 + exp(-y)), w the weight: -(w * t * log(p) + (1 - t) * log(1 - p)).
  kSigmoid,
};

// One descriptor for all kinds of ops; a field that a kind does not use is ignored. h, w and c are
// the sizes of the forward op's x, also in backward descriptors.
struct OpDesc {
  OpKind kind = OpKind::kAdd;
  int64_t n = 0;         // Batch size, >= 0.
  int64_t h = 1, w = 1;  // Image height and width, >= 1. 1 for matrices.
  int64_t c = 1;  // Channels, or the second dimension of a matrix (embedding: indices per sample).
  // Sizes of the forward op's y. Fully connected: out_c = units. Embedding: out_c = dim.
  int64_t out_h = 1, out_w = 1, out_c = 1;
  int64_t kernel = 1, stride = 1, padding = 0;  // Square windows.
  bool has_bias = false;
  bool fuse_relu = false;
  bool has_addend = false;    // For batch norm.
  bool has_dy2 = false;       // For batch norm's backward op.
  float epsilon = 1e-5f;      // For normalisations.
  float dropout_rate = 0.0f;  // [0, 1).
  Activation activation = Activation::kGelu;
  int64_t rows = 0;          // Rows of an embedding's weight.
  bool has_weights = false;  // For softmax cross-entropy and output losses.
  OutputLoss loss = OutputLoss::kSquared;
  float loss_parameter = 0.0f;

  friend auto operator<=>(const OpDesc&, const OpDesc&) = default;
};

// True for an op that only backends in host memory have: output losses, losses with weights and RMS
// normalisation.
inline bool IsHostOnly(const OpDesc& desc) {
  return desc.has_weights || desc.kind == OpKind::kOutputLossForward ||
         desc.kind == OpKind::kOutputLossBackward || desc.kind == OpKind::kRmsNormForward ||
         desc.kind == OpKind::kRmsNormBackward;
}

// For example "convolution_forward n=64 28x28x1 -> 24x24x20 kernel 5 stride 1 padding 0".
std::string ToString(const OpDesc& desc);

}  // namespace capstan::kernels

#endif  // CAPSTAN_KERNELS_OP_H_
