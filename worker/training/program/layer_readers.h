// LayerReaders: who reads which layer's output, and what may be saved because nobody else does.
//
// Thread safety: immutable after construction.
#ifndef CAPSTAN_WORKER_TRAINING_PROGRAM_LAYER_READERS_H_
#define CAPSTAN_WORKER_TRAINING_PROGRAM_LAYER_READERS_H_

#include <vector>

#include "common/model/model_plan.h"

namespace capstan::worker {

class LayerReaders {
 public:
  // `plan` is borrowed. `training`: there will be a backward pass.
  LayerReaders(const ModelPlan& plan, bool training);

  // Whether the layer's output is its input under another name: flatten, and dropout that
  // drops nothing.
  bool IsAlias(const PlannedLayer& layer) const;

  // The ReLU that may be computed together with `layer`, a convolution, a fully connected layer or
  // a batch norm: its only reader, or that of FusedAdd(layer). -1: none.
  int FusedRelu(int layer) const;

  // The sum that may be computed together with batch norm `layer`: the only reader of `layer`,
  // itself read by nobody but a ReLU, with another summand that is there before `layer`: the
  // network's input, or a layer of a lower index. So of two batch norms that are added it is the
  // later one that has the sum. -1: none.
  int FusedAdd(int layer) const;

  // What FusedAdd(layer) adds to the batch norm's output: a layer, or kNetworkInput.
  // REQUIRES: FusedAdd(layer) >= 0.
  int Addend(int layer) const;

  // The layer that `layer` is fused into, or `layer`.
  int Maker(int layer) const { return makers_[layer]; }

  // Whether a reader of `value` (a layer, or kNetworkInput) may write its output over it: it is the
  // only reader under any name, and the backward step of the layer that made it does not need it.
  bool MayOverwrite(int value) const;

 private:
  int OnlyReader(int layer) const;                  // -1: none, or several.
  int OnlyReader(int layer, LayerKind kind) const;  // Likewise, of that kind.
  int Root(int value) const;                        // The value that `value` is another name for.
  int Reads(int value) const;                       // How often it is read under any of its names.
  bool BackwardReadsOutput(int layer) const;

  const ModelPlan& plan_;
  const bool training_;
  std::vector<std::vector<int>> readers_;  // Of every layer, ascending.
  std::vector<int> makers_;                // Of every layer.
};

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_TRAINING_PROGRAM_LAYER_READERS_H_
