// BuildProgram: makes a Program from a model's plan.
//
// Layers that need no step of their own have none: flatten is another name for its input; ReLU is
// fused into the convolution, fully connected layer or batch norm before it where it is the only
// reader, and otherwise overwrites its input where nobody else needs that; a sum is fused into a
// batch norm that it alone reads, together with the ReLU that must alone read the sum, if the other
// summand is there before the batch norm. The fused step belongs to the first of its layers, and
// its output is the last one's. Layers from which no parameter can be reached have no backward
// step; nor has what is fused into a batch norm, whose backward step begins with theirs. Where a
// layer's output is read several times its gradient is the sum in descending order of the readers.
// Thread safety: pure functions.
#ifndef CAPSTAN_WORKER_TRAINING_PROGRAM_BUILD_PROGRAM_H_
#define CAPSTAN_WORKER_TRAINING_PROGRAM_BUILD_PROGRAM_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "common/model/model_plan.h"
#include "kernels/tensor_view.h"
#include "worker/training/program/program.h"

namespace capstan::worker {

// REQUIRES: `plan` is PlanModel's; n >= 1.
//   tensors  kernels::Backend::TensorType() of who will run it
// Errors: kResourceExhausted  an activation of the batch has more elements than a kernel takes;
//                             names the layer.
//         kUnimplemented      an embedding, whose row numbers 16 bits do not hold; names the layer.
absl::StatusOr<Program> BuildProgram(const ModelPlan& plan, int64_t n, ProgramKind kind,
                                     kernels::DataType tensors = kernels::DataType::kFloat32);

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_TRAINING_PROGRAM_BUILD_PROGRAM_H_
