#include "worker/training/program/layer_ops.h"

#include "absl/strings/str_cat.h"
#include "proto/job.pb.h"

namespace capstan::worker {

std::optional<LayerOps> OpsOf(const PlannedLayer& layer) {
  using kernels::OpKind;
  switch (layer.kind) {
    case v1::Layer::kConvolution:
      return LayerOps{OpKind::kConvolutionForward,
                      {OpKind::kConvolutionBackwardWeights, OpKind::kConvolutionBackwardData}};
    case v1::Layer::kFullyConnected:
      return LayerOps{
          OpKind::kFullyConnectedForward,
          {OpKind::kFullyConnectedBackwardWeights, OpKind::kFullyConnectedBackwardData}};
    case v1::Layer::kMaxPooling:
      return LayerOps{OpKind::kMaxPoolForward, {OpKind::kMaxPoolBackward}};
    case v1::Layer::kAveragePooling:
    case v1::Layer::kGlobalAveragePooling:
      return LayerOps{OpKind::kAveragePoolForward, {OpKind::kAveragePoolBackward}};
    case v1::Layer::kLayerNormalization:
      return LayerOps{OpKind::kLayerNormForward, {OpKind::kLayerNormBackward}};
    case v1::Layer::kRmsNormalization:
      return LayerOps{OpKind::kRmsNormForward, {OpKind::kRmsNormBackward}};
    case v1::Layer::kDropout:
      return LayerOps{OpKind::kDropoutForward, {OpKind::kDropoutBackward}};
    case v1::Layer::kEmbedding:
      return LayerOps{OpKind::kEmbeddingForward, {OpKind::kEmbeddingBackward}};
    case v1::Layer::kGelu:
    case v1::Layer::kSilu:
    case v1::Layer::kTanh:
    case v1::Layer::kSigmoid:
      return LayerOps{OpKind::kActivationForward, {OpKind::kActivationBackward}};
    case v1::Layer::kRelu:
    case v1::Layer::kBatchNormalization:
    case v1::Layer::kAdd:
    case v1::Layer::kFlatten:
    case v1::Layer::KIND_NOT_SET:
      break;
  }
  return std::nullopt;
}

std::optional<Operand> ParameterNamed(absl::string_view name, const PlannedLayer& layer,
                                      const ProgramWriter& writer) {
  if (name == "weight") return writer.Weight(layer.weight);
  if (name == "scale") return writer.Parameter(layer.weight);
  if (name == "bias" || name == "shift") return writer.Parameter(layer.bias);
  return std::nullopt;
}

std::optional<Operand> GradientNamed(absl::string_view name, const PlannedLayer& layer,
                                     const ProgramWriter& writer) {
  if (name == "dweight" || name == "dscale") return writer.Gradient(layer.weight);
  if (name == "dbias" || name == "dshift") return writer.Gradient(layer.bias);
  return std::nullopt;
}

absl::Status UnknownOperand(const kernels::OpDesc& op, absl::string_view name) {
  return absl::InternalError(
      absl::StrCat(ToString(op), " has an operand \"", name, "\", expected a name of layer_ops.h"));
}

}  // namespace capstan::worker
