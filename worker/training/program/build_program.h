// BuildProgram: makes a Program from a model's plan.
//
// Layers that need no step of their own have none. Flatten is another name for its input. A ReLU is
// fused into the convolution, fully connected layer or batch norm before it if it is the only
// reader; otherwise it overwrites its input if no other step needs that. A sum is fused into a
// batch norm if the sum is the batch norm's only reader, a ReLU is the sum's only reader (it is
// fused, too), and the other summand is computed before the batch norm. The fused step belongs to
// the first of its layers, and its output is the last one's. Layers from which no parameter can be
// reached have no backward step. Layers fused into a batch norm have none either: its backward step
// includes theirs. If a layer's output is read several times its gradient is the sum in descending
// order of readers.
// Thread safety: pure functions.
#ifndef CAPSTAN_WORKER_TRAINING_PROGRAM_BUILD_PROGRAM_H_
#define CAPSTAN_WORKER_TRAINING_PROGRAM_BUILD_PROGRAM_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "common/model/model_plan.h"
#include "kernels/tensor_view.h"
#include "worker/training/program/program.h"

namespace capstan::worker {

// REQUIRES: PlanModel made `plan`; n >= 1.
//   tensors  kernels::Backend::TensorType() of the backend that will run it
// Errors: kResourceExhausted  an activation of the batch has more elements than a kernel takes;
//                             names the layer.
//         kInvalidArgument    an op refuses the layer's shape or one of its numbers; names both.
//         kUnimplemented      `tensors` has 16 bits, too few for an embedding's row numbers; names
//                             the layer.
absl::StatusOr<Program> BuildProgram(const ModelPlan& plan, int64_t n, ProgramKind kind,
                                     kernels::DataType tensors = kernels::DataType::kFloat32);

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_TRAINING_PROGRAM_BUILD_PROGRAM_H_
