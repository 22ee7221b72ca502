#include "worker/training/program/program.h"

#include <algorithm>

namespace capstan::worker {

int64_t ParametersEnd(const Step& step) {
  int64_t end = 0;
  for (const std::vector<Operand>* operands : {&step.inputs, &step.outputs}) {
    for (const Operand& operand : *operands) {
      if (operand.place != Place::kParameters && operand.place != Place::kWeights &&
          operand.place != Place::kGradient) {
        continue;
      }
      end = std::max(end, operand.offset / kernels::BytesOf(operand.dtype) + operand.count);
    }
  }
  return end;
}

}  // namespace capstan::worker
