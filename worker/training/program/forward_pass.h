// The forward pass of a program. Thread safety: pure functions on a writer of the caller's.
#ifndef CAPSTAN_WORKER_TRAINING_PROGRAM_FORWARD_PASS_H_
#define CAPSTAN_WORKER_TRAINING_PROGRAM_FORWARD_PASS_H_

#include <vector>

#include "common/model/model_plan.h"
#include "worker/training/program/layer_readers.h"
#include "worker/training/program/program.h"
#include "worker/training/program/program_writer.h"

namespace capstan::worker {

// What the forward pass leaves: results, and what the backward pass reads again. Vectors have an
// element for each layer, empty where the layer has none of the kind.
struct ForwardValues {
  Operand images;                // What kNetworkInput stands for.
  std::vector<Operand> outputs;  // That of a fused layer is the output of the step that makes it.
  std::vector<Operand> pool_indices;
  std::vector<BatchMoments> moments;
  std::vector<Operand> mask_keys;
  Operand probabilities, loss;  // Of the loss.

  // What layers read as `value`: a layer's output, or the network's input.
  const Operand& Value(int value) const { return value == kNetworkInput ? images : outputs[value]; }
  const Operand& logits() const { return outputs.back(); }
};

// Adds the steps of `kind`'s forward pass, the loss included. `readers` are those of the writer's
// plan and of `kind`.
ForwardValues AddForwardPass(const LayerReaders& readers, ProgramKind kind, ProgramWriter& writer);

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_TRAINING_PROGRAM_FORWARD_PASS_H_
