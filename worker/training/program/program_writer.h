// ProgramWriter: writes both passes of a program: makes operands, descriptors and steps, and places
// the buffers between the steps in the arena.
//
// A buffer lives from the next step after it was made to the last step that has it as an operand;
// so steps must be added in the order in which they will run. Thread safety: used by one thread.
#ifndef CAPSTAN_WORKER_TRAINING_PROGRAM_PROGRAM_WRITER_H_
#define CAPSTAN_WORKER_TRAINING_PROGRAM_PROGRAM_WRITER_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
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
  int64_t n() const { return program_.n; }

  // Makes a new buffer of `count` elements, which the next step must write.
  Operand NewBuffer(int64_t count, kernels::DataType dtype = kernels::DataType::kFloat32);
  // Makes a new buffer for the batch's values of this shape, in the tensors' type.
  Operand NewActivation(const SampleShape& shape);
  Operand Images() const;
  Operand Labels() const;
  Operand Targets() const;
  Operand LossWeights() const;
  // Parameter `index` of the plan: as fp32, in the tensors' type, and its gradient.
  Operand Parameter(int index) const;
  Operand Weight(int index) const;
  Operand Gradient(int index) const;
  // Statistic `index` of the plan: the running value, and the batch's.
  Operand Statistic(int index) const;
  Operand Moment(int index) const;
  // The key of the mask that layer `i` draws: appends `i` to Program::masked_layers.
  Operand NewMaskKey(int i);

  // The descriptor of `layer` with op `kind`. Layers that read flat values have h = w = 1.
  kernels::OpDesc Desc(kernels::OpKind kind, const PlannedLayer& layer) const;
  // The descriptor of an op without windows on the batch's values of this shape.
  kernels::OpDesc Elementwise(kernels::OpKind kind, const SampleShape& shape) const;
  // The descriptor of the loss in this pass.
  kernels::OpDesc LossDesc(ProgramKind program, Pass pass) const;

  // Makes `why` the program's error, unless it has one already.
  void Refuse(int layer, const absl::Status& why);
  const absl::Status& status() const { return status_; }

  void AddForward(int layer, const kernels::OpDesc& desc, std::vector<Operand> inputs,
                  std::vector<Operand> outputs);
  void AddBackward(int layer, const kernels::OpDesc& desc, std::vector<Operand> inputs,
                   std::vector<Operand> outputs);
  void AddMoments(const BatchMoments& moments) { program_.moments.push_back(moments); }

  // Returns the program; `logits` and `loss` stay valid to its end. REQUIRES: the last call.
  // Errors: that of the first Refuse; names the layer.
  absl::StatusOr<Program> Finish(const Operand& logits, const Operand& loss);

 private:
  void Add(std::vector<Step>& steps, int layer, const kernels::OpDesc& desc,
           std::vector<Operand> inputs, std::vector<Operand> outputs);
  void UsedAt(const Operand& operand, int64_t step);
  void PlaceBuffers();

  const ModelPlan& plan_;
  const kernels::DataType tensors_;
  Program program_;
  int64_t step_count_ = 0;  // Steps added so far: the time in which buffers' lifetimes are counted.
  std::vector<ArenaBuffer> buffers_;
  absl::Status status_;  // The first error.
};

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_TRAINING_PROGRAM_PROGRAM_WRITER_H_
