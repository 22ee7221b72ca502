#include "worker/training/program/layer_readers.h"

#include <numeric>

namespace capstan::worker {
LayerReaders::LayerReaders(const ModelPlan& plan, bool training)
    : plan_(plan), training_(training), readers_(plan.layers.size()), makers_(plan.layers.size()) {
  const int layers = static_cast<int>(plan.layers.size());
  for (int i = 0; i < layers; ++i) {
    for (const int input : plan.layers[i].inputs) {
      if (input != kNetworkInput) readers_[input].push_back(i);
    }
  }
  std::iota(makers_.begin(), makers_.end(), 0);
  for (int i = 0; i < layers; ++i) {
    for (const int fused : {FusedAdd(i), FusedRelu(i)}) {
      if (fused >= 0) makers_[fused] = i;
    }
  }
}

bool LayerReaders::IsAlias(const PlannedLayer& layer) const {
  if (layer.kind == v1::Layer::kFlatten) return true;
  return layer.kind == v1::Layer::kDropout && (!training_ || layer.dropout_rate == 0);
}

int LayerReaders::FusedRelu(int layer) const {
  switch (plan_.layers[layer].kind) {
    case v1::Layer::kConvolution:
    case v1::Layer::kFullyConnected:
      return OnlyReader(layer, v1::Layer::kRelu);
    case v1::Layer::kBatchNormalization: {
      const int sum = FusedAdd(layer);
      return OnlyReader(sum >= 0 ? sum : layer, v1::Layer::kRelu);
    }
    default:
      return -1;
  }
}

int LayerReaders::FusedAdd(int layer) const {
  if (plan_.layers[layer].kind != v1::Layer::kBatchNormalization) return -1;
  const int sum = OnlyReader(layer, v1::Layer::kAdd);
  if (sum < 0 || Addend(layer) > layer) return -1;
  return OnlyReader(sum, v1::Layer::kRelu) >= 0 ? sum : -1;
}

int LayerReaders::Addend(int layer) const {
  const std::vector<int>& summands = plan_.layers[OnlyReader(layer)].inputs;
  return summands[0] == layer ? summands[1] : summands[0];
}

bool LayerReaders::MayOverwrite(int value) const {
  const int root = Root(value);
  if (root == kNetworkInput || Reads(root) != 1) return false;
  return !training_ || !BackwardReadsOutput(root);
}

// A ReLU's backward step reads the ReLU's output; if it is fused into a batch norm without a sum,
// it reads the batch norm's input instead.
bool LayerReaders::BackwardReadsOutput(int layer) const {
  if (plan_.layers[layer].kind != v1::Layer::kRelu) return false;
  const int maker = Maker(layer);
  return plan_.layers[maker].kind != v1::Layer::kBatchNormalization || FusedAdd(maker) >= 0;
}

int LayerReaders::OnlyReader(int layer) const {
  return readers_[layer].size() == 1 ? readers_[layer][0] : -1;
}

int LayerReaders::OnlyReader(int layer, v1::Layer::KindCase kind) const {
  const int reader = OnlyReader(layer);
  return reader >= 0 && plan_.layers[reader].kind == kind ? reader : -1;
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
