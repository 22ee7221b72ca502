// Program: a model's forward and backward pass for one batch size, as a list of steps over one
// arena.
//
// BuildProgram (build_program.h) makes it without a backend, so that tests can check the order of
// the steps and their memory alone. Thread safety: values and pure functions.
#ifndef CAPSTAN_WORKER_TRAINING_PROGRAM_PROGRAM_H_
#define CAPSTAN_WORKER_TRAINING_PROGRAM_PROGRAM_H_

#include <cstdint>
#include <vector>

#include "kernels/op.h"
#include "kernels/tensor_view.h"

namespace capstan::worker {

// The memory of an operand.
enum class Place {
  kArena,
  kImages,       // Images in the tensors' type.
  kLabels,       // int32.
  kTargets,      // Labels that are numbers, fp32. Host only.
  kLossWeights,  // PlannedLoss::weights. Host only.
  kParameters,   // The table "parameters" as fp32: steps read biases, scales and shifts here.
  kWeights,      // The same table in the tensors' type: steps read weights here.
  kGradient,     // The gradient of the table "parameters", fp32.
  kStatistics,   // The table "statistics": running statistics, read in evaluation.
  kMoments,      // The batch's statistics in the same order, written in training.
  kKeys,         // The keys of dropout's masks, in the order of Program::masked_layers: int32.
};
inline constexpr int kPlaceCount = 11;

struct Operand {
  Place place = Place::kArena;
  int64_t offset = 0;  // Bytes from the start of the place.
  int64_t count = 0;   // Elements.
  kernels::DataType dtype = kernels::DataType::kFloat32;
  int buffer = -1;  // Arena only: the index of the buffer.
};

struct Step {
  kernels::OpDesc desc;
  std::vector<Operand> inputs, outputs;  // Ordered as in kernels/op.h.
  int layer = -1;                        // The layer of the step; -1: the loss.
};

// Mean and variance of a batch-norm layer's batch.
struct BatchMoments {
  Operand mean, variance;        // They are in kMoments. The variance is biased.
  float unbiased_factor = 1.0f;  // Unbiased variance = biased variance * factor.
};

struct Program {
  int64_t n = 0;
  std::vector<Step> forward, backward;  // Evaluation: no backward steps.
  Operand logits, loss;                 // Valid from the end of the forward pass on.
  std::vector<BatchMoments> moments;    // Training only; valid like `logits`.
  std::vector<int> masked_layers;       // Training only: layers that draw a mask, each by its key.
  int64_t arena_bytes = 0;
};

enum class ProgramKind { kTraining, kEvaluation };

// The highest parameter, plus one, that a step reads or whose gradient it writes.
int64_t ParametersEnd(const Step& step);

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_TRAINING_PROGRAM_PROGRAM_H_
