#include "kernels/cuda/convolution.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "kernels/cuda/convolution_kernels.h"
#include "kernels/cuda/element_kernels.h"
#include "kernels/cuda/image_kernels.h"
#include "kernels/cuda/measure.h"
#include "kernels/cuda/shapes.h"
#include "kernels/cuda/status.h"

namespace capstan::kernels::cuda {
namespace {

absl::Status Execute(Device& device, const ConvolutionEngine& engine, const Descriptor& pack) {
  CAPSTAN_CUDNN_CHECK(cudnnBackendExecute(device.cudnn(), engine.plan.get(), pack.get()),
                      "running a convolution");
  return absl::OkStatus();
}

// Which operand is which, for `kind`: inputs first, then outputs, as in op.h.
struct Order {
  int x, weight, y;
};
Order OrderOf(const OpSignature& s) {
  const int out = s.input_count;
  switch (s.desc.kind) {
    case OpKind::kConvolutionBackwardData:
      return {out, 1, 0};
    case OpKind::kConvolutionBackwardWeights:
      return {0, out, 1};
    default:
      return {0, 1, out};
  }
}

absl::StatusOr<int> Fastest(Device& device, const OpSignature& signature,
                            const Rehearsal& rehearsal,
                            const std::vector<ConvolutionEngine>& engines) {
  const Order order = OrderOf(signature);
  const ConvolutionPointers pointers = {rehearsal.operand(order.x), rehearsal.operand(order.weight),
                                        rehearsal.operand(order.y)};
  CAPSTAN_ASSIGN_OR_RETURN(const Descriptor pack, PackOf(pointers, device.workspace()));
  return Choose(device, static_cast<int>(engines.size()), [&](int candidate) {
    return Execute(device, engines[static_cast<size_t>(candidate)], pack);
  });
}

// Workspace: what cuDNN wants; then the weights where they are not aligned, or dweight as cuDNN
// writes it. The sums of dbias come after the convolution, over its part.
class ConvolutionPlan : public CudaPlan {
 public:
  ConvolutionPlan(const OpSignature& signature, Device& device,
                  std::shared_ptr<const ConvolutionEngine> engine)
      : CudaPlan(signature, device), engine_(std::move(engine)) {
    const OpDesc& d = desc();
    int64_t bytes = engine_ == nullptr ? 0 : engine_->workspace_bytes;
    if (d.kind == OpKind::kConvolutionBackwardWeights && d.has_bias) {
      bytes = std::max(bytes, ColumnSumsScratchBytes(Positions(), static_cast<int>(d.out_c)));
    }
    weight_at_ = RoundUp(bytes);
  }

  int64_t WorkspaceBytes() const {
    return weight_at_ + 4 * desc().out_c * desc().kernel * desc().kernel * desc().c;
  }

  absl::Status Execute(Views in, Views out, const RunOptions&) override {
    switch (desc().kind) {
      case OpKind::kConvolutionForward:
        return Forward(in, out);
      case OpKind::kConvolutionBackwardData:
        return BackwardData(in, out);
      default:
        return BackwardWeights(in, out);
    }
  }

 private:
  int64_t Positions() const { return desc().n * desc().out_h * desc().out_w; }

  ConvolutionArgs Args(const ConvolutionPointers& p) const {
    return {element(), WindowShapeOf(desc()), static_cast<int>(desc().out_c), p.x, p.weight, p.y};
  }

  // The list of operands is kept from run to run: their places seldom change.
  absl::Status Run(const ConvolutionPointers& pointers) {
    void* const workspace = Workspace(0);
    if (pack_ == nullptr || !(pointers == packed_) || workspace != packed_workspace_) {
      CAPSTAN_ASSIGN_OR_RETURN(pack_, PackOf(pointers, workspace));
      packed_ = pointers;
      packed_workspace_ = workspace;
    }
    return Annotate(cuda::Execute(device(), *engine_, pack_), ToString(desc()));
  }

  absl::Status Forward(Views in, Views out) {
    const TensorView& y = out[0];
    if (engine_ == nullptr) {
      CAPSTAN_RETURN_IF_ERROR(
          Launched(LaunchConvolutionForward(Args({in[0].data, in[1].data, y.data}), stream())));
    } else {
      CAPSTAN_RETURN_IF_ERROR(CheckAligned(in[0], "x"));
      CAPSTAN_RETURN_IF_ERROR(CheckAligned(y, "y"));
      CAPSTAN_ASSIGN_OR_RETURN(void* const weight, AlignedInput(in[1], weight_at_));
      CAPSTAN_RETURN_IF_ERROR(Run({in[0].data, weight, y.data}));
    }
    if (!desc().has_bias && !desc().fuse_relu) return absl::OkStatus();
    return Launched(LaunchBias({.type = element(),
                                .n = y.count,
                                .c = static_cast<int>(desc().out_c),
                                .bias = desc().has_bias ? in[2].f32() : nullptr,
                                .relu = desc().fuse_relu,
                                .y = y.data},
                               stream()));
  }

  absl::Status BackwardData(Views in, Views out) {
    if (engine_ == nullptr) {
      return Launched(
          LaunchConvolutionBackwardData(Args({out[0].data, in[1].data, in[0].data}), stream()));
    }
    CAPSTAN_RETURN_IF_ERROR(CheckAligned(in[0], "dy"));
    CAPSTAN_RETURN_IF_ERROR(CheckAligned(out[0], "dx"));
    CAPSTAN_ASSIGN_OR_RETURN(void* const weight, AlignedInput(in[1], weight_at_));
    return Run({out[0].data, weight, in[0].data});
  }

  absl::Status BackwardWeights(Views in, Views out) {
    const TensorView& dweight = out[0];
    if (engine_ == nullptr) {
      CAPSTAN_RETURN_IF_ERROR(Launched(LaunchConvolutionBackwardWeights(
          Args({in[0].data, dweight.data, in[1].data}), stream())));
    } else {
      CAPSTAN_RETURN_IF_ERROR(CheckAligned(in[0], "x"));
      CAPSTAN_RETURN_IF_ERROR(CheckAligned(in[1], "dy"));
      // The library gives it in the type of the other tensors.
      const Number made_as = element() == Element::kBf16   ? Number::kBf16
                             : element() == Element::kFp16 ? Number::kFp16
                                                           : Number::kFp32;
      const bool direct = made_as == Number::kFp32 && IsAligned(dweight.data);
      void* const made = direct ? dweight.data : Workspace(weight_at_);
      CAPSTAN_RETURN_IF_ERROR(Run({in[0].data, made, in[1].data}));
      if (!direct) {
        CAPSTAN_RETURN_IF_ERROR(Launched(LaunchCast(
            {.n = dweight.count, .in = made, .out = dweight.data, .from = made_as}, stream())));
      }
    }
    if (!desc().has_bias) return absl::OkStatus();
    return Launched(LaunchColumnSums({.type = element(),
                                      .rows = Positions(),
                                      .c = static_cast<int>(desc().out_c),
                                      .dy = in[1].data,
                                      .sums = out[1].f32(),
                                      .scratch = Workspace(0)},
                                     stream()));
  }

  const std::shared_ptr<const ConvolutionEngine> engine_;
  int64_t weight_at_ = 0;
  Descriptor pack_;
  ConvolutionPointers packed_;
  void* packed_workspace_ = nullptr;
};

}  // namespace

absl::StatusOr<ConvolutionPlanner::Engine> ConvolutionPlanner::EngineOf(
    const OpSignature& signature) {
  const bool measured = device_.options().plan_choice == PlanChoice::kMeasured;
  const std::string key = PlanKey(device_, ToString(signature.desc));
  absl::StatusOr<std::vector<ConvolutionEngine>> offered =
      EnginesFor(device_.cudnn(), signature.desc, device_.options(), measured ? kCandidatesMax : 1,
                 KeptPlan(device_, key));
  if (absl::IsUnimplemented(offered.status())) return Engine();
  CAPSTAN_RETURN_IF_ERROR(offered.status());
  std::vector<ConvolutionEngine>& engines = *offered;
  int best = 0;
  if (engines.size() > 1) {
    int64_t bytes = 0;
    for (const ConvolutionEngine& engine : engines) bytes = std::max(bytes, engine.workspace_bytes);
    const absl::Status room = device_.ReserveWorkspace(bytes);
    const absl::StatusOr<Rehearsal> rehearsal =
        room.ok() ? Rehearsal::Create(device_, signature) : room;
    // Nothing can be timed on a card that is full; the library's own choice needs no more memory.
    if (!absl::IsResourceExhausted(rehearsal.status())) {
      CAPSTAN_RETURN_IF_ERROR(rehearsal.status());
      CAPSTAN_ASSIGN_OR_RETURN(best, Fastest(device_, signature, *rehearsal, engines));
      KeepPlan(device_, key, engines[static_cast<size_t>(best)].name);
    }
  }
  return std::make_shared<const ConvolutionEngine>(std::move(engines[static_cast<size_t>(best)]));
}

absl::StatusOr<std::unique_ptr<CudaPlan>> ConvolutionPlanner::Prepare(
    const OpSignature& signature) {
  const OpDesc& desc = signature.desc;
  auto found = chosen_.find(desc);
  if (found == chosen_.end()) {
    absl::StatusOr<Engine> engine = EngineOf(signature);
    if (!engine.ok()) return Annotate(engine.status(), ToString(desc));
    if (chosen_.size() >= kChosenMax) chosen_.clear();
    found = chosen_.emplace(desc, *std::move(engine)).first;
  }
  auto plan = std::make_unique<ConvolutionPlan>(signature, device_, found->second);
  if (const absl::Status reserved = device_.ReserveWorkspace(plan->WorkspaceBytes());
      !reserved.ok()) {
    return Annotate(reserved, ToString(desc));
  }
  return std::unique_ptr<CudaPlan>(std::move(plan));
}

}  // namespace capstan::kernels::cuda
