// ProgramWriter: what both passes of a program are written with: operands, descriptors, steps, and
// places in the arena for the buffers between them.
//
// A buffer lives from the step before which it was made to the last one that has it as an operand;
// so steps are added in the order in which they will run. Thread safety: used by one thread.
#ifndef CAPSTAN_WORKER_TRAINING_PROGRAM_PROGRAM_WRITER_H_
#define CAPSTAN_WORKER_TRAINING_PROGRAM_PROGRAM_WRITER_H_

#include <cstdint>
#include <vector>

#include "common/model/model_plan.h"
#include "kernels/op.h"
#include "kernels/tensor_view.h"
#include "worker/training/program/arena_planner.h"
#include "worker/training/program/program.h"

namespace capstan::worker {

class ProgramWriter {
 public:
  enum class Pass { kForward, kBackward };

  // `plan` is borrowed.
  ProgramWriter(const ModelPlan& plan, int64_t n, kernels::DataType tensors);

  const ModelPlan& plan() const { return plan_; }
  const PlannedLayer& layer(int i) const { return plan_.layers[i]; }
  int layer_count() const { return static_cast<int>(plan_.layers.size()); }
  int64_t n() const { return program_.n; }

  // Operands. A new buffer of `count` elements, which the next step must write.
  Operand NewBuffer(int64_t count, kernels::DataType dtype = kernels::DataType::kFloat32);
  // Likewise, for the batch's values of this shape, as tensors are.
  Operand NewActivation(const SampleShape& shape);
  Operand Images() const;
  Operand Labels() const;
  Operand Targets() const;
  Operand LossWeights() const;
  // Of parameter `index` of the plan: itself, itself as tensors are, and its gradient.
  Operand Parameter(int index) const;
  Operand Weight(int index) const;
  Operand Gradient(int index) const;
  // Statistic `index` of the plan: the running one, and the batch's.
  Operand Statistic(int index) const;
  Operand Moment(int index) const;
  // Of the mask that layer `i` draws: the next in Program::masked_layers.
  Operand NewMaskKey(int i);

  // The descriptor of `layer` with op `kind`; matrices for layers that read flat values.
  kernels::OpDesc Desc(kernels::OpKind kind, const PlannedLayer& layer) const;
  // Of an op without windows on the batch's values of this shape.
  kernels::OpDesc Elementwise(kernels::OpKind kind, const SampleShape& shape) const;
  // Of the loss, of either pass.
  kernels::OpDesc LossDesc(ProgramKind program, Pass pass) const;

  void AddForward(int layer, const kernels::OpDesc& desc, std::vector<Operand> inputs,
                  std::vector<Operand> outputs);
  void AddBackward(int layer, const kernels::OpDesc& desc, std::vector<Operand> inputs,
                   std::vector<Operand> outputs);
  void AddMoments(const BatchMoments& moments) { program_.moments.push_back(moments); }

  // The program, with `logits` and `loss` kept to its end. REQUIRES: nothing is called after it.
  Program Finish(const Operand& logits, const Operand& loss);

 private:
  void Add(std::vector<Step>& steps, int layer, const kernels::OpDesc& desc,
           std::vector<Operand> inputs, std::vector<Operand> outputs);
  void UsedAt(const Operand& operand, int64_t step);
  void PlaceBuffers();

  const ModelPlan& plan_;
  const kernels::DataType tensors_;
  Program program_;
  int64_t step_count_ = 0;  // Steps added so far: the time on which buffers live.
  std::vector<ArenaBuffer> buffers_;
};

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_TRAINING_PROGRAM_PROGRAM_WRITER_H_
