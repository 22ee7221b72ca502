#include "worker/training/layer_readers.h"

namespace capstan::worker {
namespace {

bool HasFusibleRelu(LayerKind kind) {
  return kind == LayerKind::kConvolution || kind == LayerKind::kFullyConnected;
}

}  // namespace

bool IsAlias(const PlannedLayer& layer, ProgramKind kind) {
  if (layer.kind == LayerKind::kFlatten) return true;
  if (layer.kind != LayerKind::kDropout) return false;
  return kind == ProgramKind::kEvaluation || layer.dropout_rate == 0;
}

LayerReaders::LayerReaders(const ModelPlan& plan, ProgramKind kind)
    : plan_(plan), kind_(kind), readers_(plan.layers.size()) {
  for (int i = 0; i < static_cast<int>(plan.layers.size()); ++i) {
    for (const int input : plan.layers[i].inputs) {
      if (input != kNetworkInput) readers_[input].push_back(i);
    }
  }
}

int LayerReaders::FusedRelu(int layer) const {
  if (!HasFusibleRelu(plan_.layers[layer].kind) || readers_[layer].size() != 1) return -1;
  const int reader = readers_[layer][0];
  return plan_.layers[reader].kind == LayerKind::kRelu ? reader : -1;
}

bool LayerReaders::MayOverwrite(int value) const {
  const int root = Root(value);
  if (root == kNetworkInput || Reads(root) != 1) return false;
  // ReLU's own backward step reads its output.
  return kind_ == ProgramKind::kEvaluation || plan_.layers[root].kind != LayerKind::kRelu;
}

int LayerReaders::Root(int value) const {
  while (value != kNetworkInput && IsAlias(plan_.layers[value], kind_)) {
    value = plan_.layers[value].inputs[0];
  }
  return value;
}

int LayerReaders::Reads(int value) const {
  int reads = 0;
  for (const int reader : readers_[value]) {
    reads += IsAlias(plan_.layers[reader], kind_) ? Reads(reader) : 1;
  }
  return reads;
}

}  // namespace capstan::worker
