// LayerReaders: who reads which layer's output, and what may be saved because nobody else does.
//
// Thread safety: immutable after construction.
#ifndef CAPSTAN_WORKER_TRAINING_LAYER_READERS_H_
#define CAPSTAN_WORKER_TRAINING_LAYER_READERS_H_

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

  // The ReLU that may be computed together with convolution or fully connected layer `layer`: its
  // only reader. -1: none.
  int FusedRelu(int layer) const;

  // Whether a reader of `value` (a layer, or -1: the network's input) may write its output over it:
  // it is the only reader under any name, and the backward step of the layer that made it does not
  // need it.
  bool MayOverwrite(int value) const;

 private:
  int Root(int value) const;   // The value that `value` is another name for.
  int Reads(int value) const;  // How often it is read under any of its names.

  const ModelPlan& plan_;
  const bool training_;
  std::vector<std::vector<int>> readers_;  // Of every layer, ascending.
};

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_TRAINING_LAYER_READERS_H_
