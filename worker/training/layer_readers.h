// LayerReaders: which layers of a model read which, and what a program may save because of it.
//
// A value is the output of a layer, named by the layer's index, or the network's input. Flatten and
// a dropout that does nothing have no value of their own: theirs is their input's under another
// name. Thread safety: immutable.
#ifndef CAPSTAN_WORKER_TRAINING_LAYER_READERS_H_
#define CAPSTAN_WORKER_TRAINING_LAYER_READERS_H_

#include <vector>

#include "common/model/model_plan.h"

namespace capstan::worker {

enum class ProgramKind { kTraining, kEvaluation };

inline constexpr int kNetworkInput = -1;  // As in PlannedLayer::inputs.

// Whether the layer's output is its input under another name.
bool IsAlias(const PlannedLayer& layer, ProgramKind kind);

class LayerReaders {
 public:
  // `plan` is borrowed.
  LayerReaders(const ModelPlan& plan, ProgramKind kind);

  // The ReLU that may be computed together with `layer`, or -1: it must be the only reader of a
  // convolution or fully connected layer.
  int FusedRelu(int layer) const;

  // Whether the only reader of `value` may overwrite it: nobody else reads it under any of its
  // names, it is not the network's input, and the step that made it does not need it backward.
  // REQUIRES: the reader's own backward step does not read its input (as ReLU's and add's).
  bool MayOverwrite(int value) const;

 private:
  // The value that `value` is another name for.
  int Root(int value) const;
  // How often the value is read under any of its names.
  int Reads(int value) const;

  const ModelPlan& plan_;
  const ProgramKind kind_;
  std::vector<std::vector<int>> readers_;  // Of every layer.
};

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_TRAINING_LAYER_READERS_H_
