// LayerOps: the ops that compute a layer, where both passes follow from their operands' names.
//
// The signatures of the ops (kernels/op_check.h) name the operands. The passes give each name the
// same meaning in all layers:
//
//   x, rows          the layer's input                  dx         the gradient of x
//   y                its output                         dy         the gradient of y
//   weight, scale    the parameter PlannedLayer::weight dweight, dscale  its gradient
//   bias, shift      PlannedLayer::bias                 dbias, dshift    its gradient
//   key              the key of the mask that it draws
//   others           what the forward op has written for the backward op: moments, indices
// Thread safety: pure functions.
#ifndef CAPSTAN_WORKER_TRAINING_PROGRAM_LAYER_OPS_H_
#define CAPSTAN_WORKER_TRAINING_PROGRAM_LAYER_OPS_H_

#include <optional>
#include <vector>

#include "common/model/model_plan.h"
#include "kernels/op.h"

namespace capstan::worker {

struct LayerOps {
  kernels::OpKind forward;
  // In their order. One that computes nothing but dx is left out if nobody wants that.
  std::vector<kernels::OpKind> backward;
};

// Nothing for layers of which a pass knows more: ReLU, batch normalisation, sums and flatten.
std::optional<LayerOps> OpsOf(const PlannedLayer& layer);

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_TRAINING_PROGRAM_LAYER_OPS_H_
