// LayerReaders: finds the readers of each layer's output, and the fusions that they allow.
//
// Thread safety: immutable after construction.
#ifndef CAPSTAN_WORKER_TRAINING_PROGRAM_LAYER_READERS_H_
#define CAPSTAN_WORKER_TRAINING_PROGRAM_LAYER_READERS_H_

#include <vector>

#include "common/model/model_plan.h"
#include "proto/job.pb.h"

namespace capstan::worker {

class LayerReaders {
 public:
  // `plan` is borrowed. `training`: the program has a backward pass.
  LayerReaders(const ModelPlan& plan, bool training);

  // True if the layer's output is its input under another name: flatten, and dropout that drops
  // nothing.
  bool IsAlias(const PlannedLayer& layer) const;

  // The ReLU that is fused into `layer`, a convolution, a fully connected layer or a batch norm:
  // the only reader of `layer`, or of FusedAdd(layer) if there is one. -1: none.
  int FusedRelu(int layer) const;

  // The sum that is fused into batch norm `layer`. It is the only reader of `layer`, its own only
  // reader is a ReLU, and its other summand (the network's input, or a layer of a lower index) is
  // computed before `layer`. So a sum of two batch norms is fused into the later one. -1: none.
  int FusedAdd(int layer) const;

  // The summand that FusedAdd(layer) adds to the batch norm's output: a layer, or kNetworkInput.
  // REQUIRES: FusedAdd(layer) >= 0.
  int Addend(int layer) const;

  // The layer into which `layer` is fused, or `layer` itself.
  int Maker(int layer) const { return makers_[layer]; }

  // True if a reader of `value` (a layer, or kNetworkInput) may overwrite it with its output: it is
  // the only reader under any name, and the backward step of the layer that made the value does not
  // need it. Always false for kNetworkInput.
  bool MayOverwrite(int value) const;

 private:
  int OnlyReader(int layer) const;  // -1: none, or several.
  int OnlyReader(int layer,
                 v1::Layer::KindCase kind) const;  // -1 also if the reader is of another kind.
  int Root(int value) const;                       // The value of which `value` is another name.
  int Reads(int value) const;                      // The number of reads under any of its names.
  bool BackwardReadsOutput(int layer) const;

  const ModelPlan& plan_;
  const bool training_;
  std::vector<std::vector<int>> readers_;  // Readers of each layer, ascending.
  std::vector<int> makers_;                // The layer that computes each layer's output.
};

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_TRAINING_PROGRAM_LAYER_READERS_H_
