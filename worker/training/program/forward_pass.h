// Adds the forward pass to a program. Thread safety: a pure function on the caller's writer.
#ifndef CAPSTAN_WORKER_TRAINING_PROGRAM_FORWARD_PASS_H_
#define CAPSTAN_WORKER_TRAINING_PROGRAM_FORWARD_PASS_H_

#include <map>
#include <string>
#include <vector>

#include "common/model/model_plan.h"
#include "worker/training/program/layer_readers.h"
#include "worker/training/program/program.h"
#include "worker/training/program/program_writer.h"

namespace capstan::worker {

// The operands that the forward pass leaves: its results, and those that the backward pass reads.
// Vectors have an element for each layer, which is empty if the layer has no such operand.
struct ForwardValues {
  Operand images;                     // The value of kNetworkInput.
  std::vector<Operand> outputs;       // A fused layer has the output of the step that computes it.
  std::vector<BatchMoments> moments;  // Batch norms.
  // The operands that forward ops keep for backward ops, by name (layer_ops.h): mask keys, moments,
  // indices.
  std::vector<std::map<std::string, Operand>> kept;
  Operand probabilities, loss;  // The outputs of the loss; no probabilities without classes.

  // The operand of `value`: a layer's output, or the network's input.
  const Operand& Value(int value) const { return value == kNetworkInput ? images : outputs[value]; }
  const Operand& logits() const { return outputs.back(); }
};

// Adds the steps of `kind`'s forward pass, the loss included. `readers` are those of the writer's
// plan and of `kind`. The values are not complete if the writer's status is an error.
ForwardValues AddForwardPass(const LayerReaders& readers, ProgramKind kind, ProgramWriter& writer);

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_TRAINING_PROGRAM_FORWARD_PASS_H_
