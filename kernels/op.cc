#include "kernels/op.h"

#include <cstddef>
#include <string>

#include "absl/strings/str_cat.h"

namespace capstan::kernels {
namespace {

const char* KindName(OpKind kind) {
  const auto index = static_cast<size_t>(kind);
  return index < kOpKindCount ? kOpNames[index] : "unknown_op";
}

const char* LossName(OutputLoss loss) {
  switch (loss) {
    case OutputLoss::kSquared:
      return "squared";
    case OutputLoss::kHuber:
      return "huber";
    case OutputLoss::kQuantile:
      return "quantile";
    case OutputLoss::kSigmoid:
      return "sigmoid";
  }
  return "unknown_loss";
}

// Writes the shapes like "28x28x1 -> 24x24x20 kernel 5 stride 1 padding 0" or "800 -> 500".
std::string Shapes(const OpDesc& d) {
  const std::string image = absl::StrCat(d.h, "x", d.w, "x", d.c);
  switch (d.kind) {
    case OpKind::kConvolutionForward:
    case OpKind::kConvolutionBackwardData:
    case OpKind::kConvolutionBackwardWeights:
    case OpKind::kMaxPoolForward:
    case OpKind::kMaxPoolBackward:
    case OpKind::kAveragePoolForward:
    case OpKind::kAveragePoolBackward:
      return absl::StrCat(image, " -> ", d.out_h, "x", d.out_w, "x", d.out_c, " kernel ", d.kernel,
                          " stride ", d.stride, " padding ", d.padding);
    case OpKind::kFullyConnectedForward:
    case OpKind::kFullyConnectedBackwardData:
    case OpKind::kFullyConnectedBackwardWeights:
      return absl::StrCat(d.c, " -> ", d.out_c);
    case OpKind::kBatchNormForward:
    case OpKind::kBatchNormInference:
    case OpKind::kBatchNormBackward:
    case OpKind::kLayerNormForward:
    case OpKind::kLayerNormBackward:
      return absl::StrCat(image, " epsilon ", d.epsilon);
    case OpKind::kActivationForward:
    case OpKind::kActivationBackward:
      return absl::StrCat(image, " ", NameOf(d.activation));
    case OpKind::kDropoutForward:
    case OpKind::kDropoutBackward:
      return absl::StrCat(image, " rate ", d.dropout_rate);
    case OpKind::kSoftmaxCrossEntropyForward:
    case OpKind::kSoftmaxCrossEntropyBackward:
      return absl::StrCat(d.c, " classes");
    case OpKind::kOutputLossForward:
    case OpKind::kOutputLossBackward:
      return absl::StrCat(d.c, " outputs ", LossName(d.loss), " ", d.loss_parameter);
    case OpKind::kEmbeddingForward:
    case OpKind::kEmbeddingBackward:
      return absl::StrCat(d.c, " of ", d.rows, " rows x ", d.out_c);
    default:
      return image;
  }
}

}  // namespace

std::string ToString(const OpDesc& desc) {
  return absl::StrCat(KindName(desc.kind), " n=", desc.n, " ", Shapes(desc),
                      desc.has_bias ? " bias" : "", desc.has_addend ? " addend" : "",
                      desc.has_dy2 ? " dy2" : "", desc.fuse_relu ? " relu" : "",
                      desc.has_weights ? " weights" : "");
}

}  // namespace capstan::kernels
