// LayerOps: the ops of a layer whose steps in both passes follow from the names of their operands.
//
// The signatures of the ops (kernels/op_check.h) name the operands. Both passes give each name the
// same meaning in all layers, and refuse any other:
//
//   x, rows          the layer's first input            dx         the gradient of x
//   y                its output                         dy         the gradient of y
//   weight, scale    the parameter PlannedLayer::weight dweight, dscale  its gradient
//   bias, shift      PlannedLayer::bias                 dbias, dshift    its gradient
//   key              the key of the mask that it draws
//
// Another output of the forward op, such as moments or indices, is kept for the backward op's input
// of its name. Thread safety: pure functions.
#ifndef CAPSTAN_WORKER_TRAINING_PROGRAM_LAYER_OPS_H_
#define CAPSTAN_WORKER_TRAINING_PROGRAM_LAYER_OPS_H_

#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/model/model_plan.h"
#include "kernels/op.h"
#include "worker/training/program/program.h"
#include "worker/training/program/program_writer.h"

namespace capstan::worker {

struct LayerOps {
  kernels::OpKind forward;
  // In the order in which they run. An op whose only output is dx is left out if nothing before the
  // layer has a gradient.
  std::vector<kernels::OpKind> backward;
};

// No value for ReLU, batch normalisation and sums, whose steps may be fused, and for flatten, which
// has none: both passes write them by hand.
std::optional<LayerOps> OpsOf(const PlannedLayer& layer);

// The parameter, or the gradient of one, that an op of the layer calls `name`. No value: it is
// neither.
std::optional<Operand> ParameterNamed(absl::string_view name, const PlannedLayer& layer,
                                      const ProgramWriter& writer);
std::optional<Operand> GradientNamed(absl::string_view name, const PlannedLayer& layer,
                                     const ProgramWriter& writer);

// The error for an operand whose name has no meaning.
absl::Status UnknownOperand(const kernels::OpDesc& op, absl::string_view name);

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_TRAINING_PROGRAM_LAYER_OPS_H_
