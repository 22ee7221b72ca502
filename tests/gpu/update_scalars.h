// The scalars of a server's update as the GPU's kernels take them.
//
// Thread safety: a pure function.
#ifndef CAPSTAN_TESTS_GPU_UPDATE_SCALARS_H_
#define CAPSTAN_TESTS_GPU_UPDATE_SCALARS_H_

#include "kernels/cuda/element_rules.h"
#include "server/optimizer/step_scalars.h"

namespace capstan::gpu {

inline kernels::cuda::UpdateScalars UpdateScalarsOf(const server::StepScalars& c) {
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

}  // namespace capstan::gpu

#endif  // CAPSTAN_TESTS_GPU_UPDATE_SCALARS_H_
