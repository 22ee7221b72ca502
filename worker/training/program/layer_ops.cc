#include "worker/training/program/layer_ops.h"

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
    default:
      if (layer.activation.empty()) return std::nullopt;
      return LayerOps{OpKind::kActivationForward, {OpKind::kActivationBackward}};
  }
}

}  // namespace capstan::worker
