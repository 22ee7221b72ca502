// Adds the backward pass to a program. Thread safety: a pure function on the caller's writer.
#ifndef CAPSTAN_WORKER_TRAINING_PROGRAM_BACKWARD_PASS_H_
#define CAPSTAN_WORKER_TRAINING_PROGRAM_BACKWARD_PASS_H_

#include "worker/training/program/forward_pass.h"
#include "worker/training/program/layer_readers.h"
#include "worker/training/program/program_writer.h"

namespace capstan::worker {

// Adds the steps of training's backward pass behind those of its forward pass, which returned
// `forward`; the loss comes first, and then the layers in descending order.
void AddBackwardPass(const LayerReaders& readers, const ForwardValues& forward,
                     ProgramWriter& writer);

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_TRAINING_PROGRAM_BACKWARD_PASS_H_
