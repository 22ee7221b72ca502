#include "kernels/cuda/plans/own_plans.h"

#include <cuda_runtime_api.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/status/annotate.h"
#include "kernels/cuda/element_rules.h"
#include "kernels/cuda/own/element_kernels.h"
#include "kernels/cuda/own/image_kernels.h"
#include "kernels/cuda/own/row_kernels.h"
#include "kernels/cuda/plans/status.h"

namespace capstan::kernels::cuda {
namespace {

// The plan of an empty batch. Its only outputs with elements are gradients of parameters and
// moments, which are 0.
class EmptyPlan : public CudaPlan {
 public:
  using CudaPlan::CudaPlan;

  absl::Status Execute(Views, Views out, const RunOptions&) override {
    for (const TensorView& view : out) {
      if (view.count == 0) continue;
      CAPSTAN_CUDA_CHECK(
          cudaMemsetAsync(view.data, 0, static_cast<size_t>(BytesOf(view)), stream()),
          "clearing a gradient");
    }
    return absl::OkStatus();
  }
};

class ElementPlan : public CudaPlan {
 public:
  ElementPlan(const OpSignature& signature, Device& device)
      : CudaPlan(signature, device), dropout_(DropoutRuleOf(signature.desc.dropout_rate)) {}

  absl::Status Execute(Views in, Views out, const RunOptions&) override {
    const MapArgs args = {.type = element(),
                          .n = out[0].count,
                          .a = in[0].data,
                          .b = in.size() > 1 ? in[1].data : nullptr,
                          .y = out[0].data};
    switch (desc().kind) {
      case OpKind::kReluForward:
        return Launched(LaunchRelu(args, stream()));
      case OpKind::kReluBackward:
        return Launched(LaunchReluBackward(args, stream()));
      case OpKind::kActivationForward:
        return Launched(LaunchActivation(args, desc().activation, stream()));
      case OpKind::kActivationBackward:
        return Launched(LaunchActivationBackward(args, desc().activation, stream()));
      case OpKind::kAdd:
        return Launched(LaunchAdd(args, stream()));
      default:
        break;
    }
    return Launched(LaunchDropout(args, dropout_, in[1].i32(), stream()));
  }

 private:
  const DropoutRule dropout_;
};

class PoolPlan : public CudaPlan {
 public:
  using CudaPlan::CudaPlan;

  absl::Status Execute(Views in, Views out, const RunOptions&) override {
    PoolArgs args = {
        .type = element(), .shape = WindowShapeOf(desc()), .from = in[0].data, .to = out[0].data};
    switch (desc().kind) {
      case OpKind::kMaxPoolForward:
        args.index = out[1].i32();
        return Launched(LaunchMaxPoolForward(args, stream()));
      case OpKind::kMaxPoolBackward:
        args.index = in[1].i32();
        return Launched(LaunchMaxPoolBackward(args, stream()));
      case OpKind::kAveragePoolForward:
        return Launched(LaunchAveragePoolForward(args, stream()));
      default:
        return Launched(LaunchAveragePoolBackward(args, stream()));
    }
  }
};

class BatchNormPlan : public CudaPlan {
 public:
  using CudaPlan::CudaPlan;

  absl::Status Execute(Views in, Views out, const RunOptions&) override {
    BatchNormArgs args = {.type = element(),
                          .fused = desc().has_addend  ? Fused::kAddendRelu
                                   : desc().fuse_relu ? Fused::kRelu
                                                      : Fused::kNothing,
                          .rows = desc().n * desc().h * desc().w,
                          .c = static_cast<int>(desc().c),
                          .epsilon = desc().epsilon,
                          .x = in[0].data,
                          .out = out[0].data,
                          .scratch = Workspace(0),
                          .strips_done = device().strips_done()};
    if (desc().kind == OpKind::kBatchNormBackward) return Backward(args, in, out);
    args.scale = in[1].f32();
    args.shift = in[2].f32();
    if (desc().has_addend) args.addend = in.back().data;
    const bool training = desc().kind == OpKind::kBatchNormForward;
    args.mean = training ? out[1].f32() : in[3].f32();
    args.variance = training ? out[2].f32() : in[4].f32();
    return Launched(training ? LaunchBatchNormForward(args, stream())
                             : LaunchBatchNormInference(args, stream()));
  }

 private:
  absl::Status Backward(BatchNormArgs args, Views in, Views out) {
    args.dy = in[1].data;
    args.scale = in[2].f32();
    args.mean = in[3].f32();
    args.variance = in[4].f32();
    args.dscale = out[1].f32();
    args.dshift = out[2].f32();
    if (args.fused == Fused::kRelu) args.shift = in[5].f32();
    if (args.fused == Fused::kAddendRelu) {
      args.y = in[5].data;
      args.dsum = out[3].data;
      if (desc().has_dy2) args.dy2 = in[6].data;
    }
    return Launched(LaunchBatchNormBackward(args, stream()));
  }
};

class LayerNormPlan : public CudaPlan {
 public:
  using CudaPlan::CudaPlan;

  absl::Status Execute(Views in, Views out, const RunOptions&) override {
    LayerNormArgs args = {.type = element(),
                          .rows = desc().n * desc().h * desc().w,
                          .c = static_cast<int>(desc().c),
                          .epsilon = desc().epsilon,
                          .x = in[0].data,
                          .out = out[0].data,
                          .scratch = Workspace(0),
                          .strips_done = device().strips_done()};
    if (desc().kind == OpKind::kLayerNormForward) {
      args.scale = in[1].f32();
      args.shift = in[2].f32();
      args.mean = out[1].f32();
      args.variance = out[2].f32();
      return Launched(LaunchLayerNormForward(args, stream()));
    }
    args.dy = in[1].data;
    args.scale = in[2].f32();
    args.mean = in[3].f32();
    args.variance = in[4].f32();
    args.dscale = out[1].f32();
    args.dshift = out[2].f32();
    return Launched(LaunchLayerNormBackward(args, stream()));
  }
};

class SoftmaxPlan : public CudaPlan {
 public:
  using CudaPlan::CudaPlan;

  absl::Status Execute(Views in, Views out, const RunOptions& options) override {
    SoftmaxArgs args = {.type = element(),
                        .n = desc().n,
                        .classes = static_cast<int>(desc().c),
                        .labels = in[1].i32(),
                        .scale = options.scale,
                        .faults = device().ReportLabels(desc().c)};
    if (desc().kind == OpKind::kSoftmaxCrossEntropyForward) {
      args.logits = in[0].data;
      args.probabilities = out[0].f32();
      args.loss = out[1].f32();
      return Launched(LaunchSoftmaxForward(args, stream()));
    }
    args.probabilities = in[0].f32();
    args.dlogits = out[0].data;
    return Launched(LaunchSoftmaxBackward(args, stream()));
  }
};

class EmbeddingPlan : public CudaPlan {
 public:
  using CudaPlan::CudaPlan;

  absl::Status Execute(Views in, Views out, const RunOptions&) override {
    EmbeddingArgs args = {.type = element(),
                          .count = in[0].count,
                          .dim = static_cast<int>(desc().out_c),
                          .rows = desc().rows,
                          .row_numbers = in[0].f32(),
                          .scratch = Workspace(0),
                          .faults = device().ReportRows(desc().rows)};
    if (desc().kind == OpKind::kEmbeddingForward) {
      args.weight = in[1].data;
      args.y = out[0].data;
      return Launched(LaunchEmbeddingForward(args, stream()));
    }
    args.dy = in[1].data;
    args.dweight = out[0].f32();
    return Launched(LaunchEmbeddingBackward(args, stream()));
  }
};

int64_t WorkspaceBytes(const OpSignature& signature) {
  const OpDesc& d = signature.desc;
  switch (d.kind) {
    case OpKind::kBatchNormForward:
    case OpKind::kBatchNormBackward:
    case OpKind::kLayerNormBackward:
      return ColumnSumsScratchBytes(d.n * d.h * d.w, static_cast<int>(d.c));
    case OpKind::kEmbeddingBackward:
      return EmbeddingScratchBytes(signature.inputs[0].count);
    default:
      return 0;
  }
}

std::unique_ptr<CudaPlan> PlanOf(const OpSignature& signature, Device& device) {
  if (signature.desc.n == 0) return std::make_unique<EmptyPlan>(signature, device);
  switch (signature.desc.kind) {
    case OpKind::kMaxPoolForward:
    case OpKind::kMaxPoolBackward:
    case OpKind::kAveragePoolForward:
    case OpKind::kAveragePoolBackward:
      return std::make_unique<PoolPlan>(signature, device);
    case OpKind::kBatchNormForward:
    case OpKind::kBatchNormInference:
    case OpKind::kBatchNormBackward:
      return std::make_unique<BatchNormPlan>(signature, device);
    case OpKind::kLayerNormForward:
    case OpKind::kLayerNormBackward:
      return std::make_unique<LayerNormPlan>(signature, device);
    case OpKind::kSoftmaxCrossEntropyForward:
    case OpKind::kSoftmaxCrossEntropyBackward:
      return std::make_unique<SoftmaxPlan>(signature, device);
    case OpKind::kEmbeddingForward:
    case OpKind::kEmbeddingBackward:
      return std::make_unique<EmbeddingPlan>(signature, device);
    default:
      return std::make_unique<ElementPlan>(signature, device);
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<CudaPlan>> MakeOwnPlan(const OpSignature& signature,
                                                      Device& device) {
  if (signature.desc.n > 0) {
    const absl::Status reserved = device.ReserveWorkspace(WorkspaceBytes(signature));
    if (!reserved.ok()) return Annotate(reserved, ToString(signature.desc));
  }
  return PlanOf(signature, device);
}

}  // namespace capstan::kernels::cuda
