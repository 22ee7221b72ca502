#include "worker/training/layer_readers.h"

namespace capstan::worker {
namespace {

constexpr int kNetworkInput = -1;

}  // namespace

LayerReaders::LayerReaders(const ModelPlan& plan, bool training)
    : plan_(plan), training_(training), readers_(plan.layers.size()) {
  for (int i = 0; i < static_cast<int>(plan.layers.size()); ++i) {
    for (const int input : plan.layers[i].inputs) {
      if (input != kNetworkInput) readers_[input].push_back(i);
    }
  }
}

bool LayerReaders::IsAlias(const PlannedLayer& layer) const {
  if (layer.kind == LayerKind::kFlatten) return true;
  return layer.kind == LayerKind::kDropout && (!training_ || layer.dropout_rate == 0);
}

int LayerReaders::FusedRelu(int layer) const {
  const LayerKind kind = plan_.layers[layer].kind;
  if (kind != LayerKind::kConvolution && kind != LayerKind::kFullyConnected) return -1;
  if (readers_[layer].size() != 1) return -1;
  const int reader = readers_[layer][0];
  return plan_.layers[reader].kind == LayerKind::kRelu ? reader : -1;
}

bool LayerReaders::MayOverwrite(int value) const {
  const int root = Root(value);
  if (root == kNetworkInput || Reads(root) != 1) return false;
  // ReLU's own backward step reads its output.
  return !training_ || plan_.layers[root].kind != LayerKind::kRelu;
}

int LayerReaders::Root(int value) const {
  while (value != kNetworkInput && IsAlias(plan_.layers[value])) {
    value = plan_.layers[value].inputs[0];
  }
  return value;
}

int LayerReaders::Reads(int value) const {
  int reads = 0;
  for (const int reader : readers_[value]) {
    reads += IsAlias(plan_.layers[reader]) ? Reads(reader) : 1;
  }
  return reads;
}

}  // namespace capstan::worker
