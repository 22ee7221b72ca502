// The scalars of a server's update as the GPU's kernels take them.
//
// Thread safety: a pure function.
#ifndef CAPSTAN_SERVER_DEVICE_UPDATE_SCALARS_H_
#define CAPSTAN_SERVER_DEVICE_UPDATE_SCALARS_H_

#include "kernels/cuda/element_rules.h"
#include "server/optimizer/step_scalars.h"

namespace capstan::server {

inline kernels::cuda::UpdateScalars UpdateScalarsOf(const StepScalars& c) {
  return {.lr = c.lr,
          .clip = c.clip,
          .weight_decay = c.weight_decay,
          .keep = c.keep,
          .momentum = c.momentum,
          .beta1 = c.beta1,
          .one_minus_beta1 = c.one_minus_beta1,
          .beta2 = c.beta2,
          .one_minus_beta2 = c.one_minus_beta2,
          .root_scale = c.root_scale,
          .epsilon = c.epsilon};
}

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_DEVICE_UPDATE_SCALARS_H_
