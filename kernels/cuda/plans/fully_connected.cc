#include "kernels/cuda/plans/fully_connected.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "kernels/cuda/own/element_kernels.h"
#include "kernels/cuda/own/image_kernels.h"
#include "kernels/cuda/plans/measure.h"
#include "kernels/cuda/plans/status.h"

namespace capstan::kernels::cuda {
namespace {

// The plan of one fully connected op. Its workspace begins with cuBLASLt's; then come copies of the
// weight and the bias (or of their gradients) if these are not aligned. The sums of dbias run after
// the product and use cuBLASLt's part.
class FullyConnectedPlan : public CudaPlan {
 public:
  FullyConnectedPlan(const OpSignature& signature, Device& device,
                     std::shared_ptr<MatrixProduct> product)
      : CudaPlan(signature, device), product_(std::move(product)) {
    int64_t bytes = product_->workspace_bytes();
    if (desc().kind == OpKind::kFullyConnectedBackwardWeights && desc().has_bias) {
      bytes = std::max(bytes, ColumnSumsScratchBytes(desc().n, static_cast<int>(desc().out_c)));
    }
    weight_at_ = RoundUp(bytes);
    bias_at_ = weight_at_ + RoundUp(4 * desc().c * desc().out_c);
  }

  int64_t WorkspaceBytes() const { return bias_at_ + 4 * desc().out_c; }

  absl::Status Execute(Views in, Views out, const RunOptions&) override {
    switch (desc().kind) {
      case OpKind::kFullyConnectedForward:
        return Forward(in, out);
      case OpKind::kFullyConnectedBackwardData:
        return BackwardData(in, out);
      default:
        return BackwardWeights(in, out);
    }
  }

 private:
  absl::Status Run(const ProductPointers& pointers) {
    return Annotate(product_->Run(device(), pointers), ToString(desc()));
  }

  absl::Status Forward(Views in, Views out) {
    const TensorView& y = out[0];
    CAPSTAN_RETURN_IF_ERROR(CheckAligned(in[0], "x"));
    CAPSTAN_RETURN_IF_ERROR(CheckAligned(y, "y"));
    CAPSTAN_ASSIGN_OR_RETURN(void* const weight, AlignedInput(in[1], weight_at_));
    ProductPointers pointers = {.a = weight, .b = in[0].data, .d = y.data};
    const bool fused = product_->epilogue() == Epilogue::kBias;
    if (fused) {
      CAPSTAN_ASSIGN_OR_RETURN(pointers.bias, AlignedInput(in[2], bias_at_));
    }
    CAPSTAN_RETURN_IF_ERROR(Run(pointers));
    const bool bias = desc().has_bias && !fused;
    if (!bias && !desc().fuse_relu) return absl::OkStatus();
    return Launched(LaunchBias({.type = element(),
                                .n = y.count,
                                .c = static_cast<int>(desc().out_c),
                                .bias = bias ? in[2].f32() : nullptr,
                                .relu = desc().fuse_relu,
                                .y = y.data},
                               stream()));
  }

  absl::Status BackwardData(Views in, Views out) {
    CAPSTAN_RETURN_IF_ERROR(CheckAligned(in[0], "dy"));
    CAPSTAN_RETURN_IF_ERROR(CheckAligned(out[0], "dx"));
    CAPSTAN_ASSIGN_OR_RETURN(void* const weight, AlignedInput(in[1], weight_at_));
    return Run({.a = weight, .b = in[0].data, .d = out[0].data});
  }

  absl::Status BackwardWeights(Views in, Views out) {
    CAPSTAN_RETURN_IF_ERROR(CheckAligned(in[0], "x"));
    CAPSTAN_RETURN_IF_ERROR(CheckAligned(in[1], "dy"));
    const bool fused = product_->epilogue() == Epilogue::kBiasGradient;
    const TensorView& dweight = out[0];
    void* const weight = IsAligned(dweight.data) ? dweight.data : Workspace(weight_at_);
    void* bias = nullptr;
    if (fused) bias = IsAligned(out[1].data) ? out[1].data : Workspace(bias_at_);
    CAPSTAN_RETURN_IF_ERROR(Run({.a = in[0].data, .b = in[1].data, .d = weight, .bias = bias}));
    CAPSTAN_RETURN_IF_ERROR(CopyOut(weight, dweight));
    if (!desc().has_bias) return absl::OkStatus();
    if (fused) return CopyOut(bias, out[1]);
    return Launched(LaunchColumnSums({.type = element(),
                                      .rows = desc().n,
                                      .c = static_cast<int>(desc().out_c),
                                      .dy = in[1].data,
                                      .sums = out[1].f32(),
                                      .scratch = Workspace(0),
                                      .strips_done = device().strips_done()},
                                     stream()));
  }

  absl::Status CopyOut(const void* made, const TensorView& to) {
    if (made == to.data) return absl::OkStatus();
    CAPSTAN_CUDA_CHECK(cudaMemcpyAsync(to.data, made, static_cast<size_t>(BytesOf(to)),
                                       cudaMemcpyDeviceToDevice, stream()),
                       "copying a gradient");
    return absl::OkStatus();
  }

  const std::shared_ptr<MatrixProduct> product_;
  int64_t weight_at_ = 0;
  int64_t bias_at_ = 0;
};

Epilogue EpilogueOf(const OpDesc& desc) {
  if (!desc.has_bias) return Epilogue::kNone;
  if (desc.kind == OpKind::kFullyConnectedForward) return Epilogue::kBias;
  if (desc.kind == OpKind::kFullyConnectedBackwardWeights) return Epilogue::kBiasGradient;
  return Epilogue::kNone;
}

ProductPointers RehearsalPointers(const OpSignature& s, const Rehearsal& rehearsal,
                                  Epilogue epilogue) {
  const int out = s.input_count;
  switch (s.desc.kind) {
    case OpKind::kFullyConnectedBackwardData:
      return {rehearsal.operand(1), rehearsal.operand(0), rehearsal.operand(out), nullptr};
    case OpKind::kFullyConnectedBackwardWeights:
      return {rehearsal.operand(0), rehearsal.operand(1), rehearsal.operand(out),
              epilogue == Epilogue::kNone ? nullptr : rehearsal.operand(out + 1)};
    default:
      return {rehearsal.operand(1), rehearsal.operand(0), rehearsal.operand(out),
              epilogue == Epilogue::kNone ? nullptr : rehearsal.operand(2)};
  }
}

// Makes the product with the op's epilogue if cuBLASLt has it for these types, else without.
absl::StatusOr<std::unique_ptr<MatrixProduct>> Offered(Device& device, const OpDesc& desc,
                                                       int count_max) {
  const Epilogue epilogue = EpilogueOf(desc);
  if (epilogue != Epilogue::kNone) {
    auto fused = MatrixProduct::Create(device, desc, epilogue, count_max);
    if (fused.ok()) return fused;
  }
  return MatrixProduct::Create(device, desc, Epilogue::kNone, count_max);
}

absl::StatusOr<std::shared_ptr<MatrixProduct>> Chosen(Device& device,
                                                      const OpSignature& signature) {
  const bool measured = device.options().plan_choice == PlanChoice::kMeasured;
  CAPSTAN_ASSIGN_OR_RETURN(std::unique_ptr<MatrixProduct> product,
                           Offered(device, signature.desc, measured ? kCandidatesMax : 1));
  const std::string key = PlanKey(device, absl::StrCat(ToString(signature.desc), " epilogue ",
                                                       static_cast<int>(product->epilogue())));
  const std::string kept = KeptPlan(device, key);
  for (int i = 0; i < product->candidates() && !kept.empty(); ++i) {
    if (product->NameOf(i) != kept) continue;
    product->Keep(i);
    break;
  }
  if (product->candidates() > 1) {
    const absl::Status room = device.ReserveWorkspace(product->workspace_bytes());
    const absl::StatusOr<Rehearsal> rehearsal =
        room.ok() ? Rehearsal::Create(device, signature) : room;
    int best = 0;
    // Nothing can be timed on a full card; the library's first choice needs no memory for timing.
    if (!absl::IsResourceExhausted(rehearsal.status())) {
      CAPSTAN_RETURN_IF_ERROR(rehearsal.status());
      const ProductPointers pointers =
          RehearsalPointers(signature, *rehearsal, product->epilogue());
      CAPSTAN_ASSIGN_OR_RETURN(const Choice choice,
                               Choose(device, product->candidates(), [&](int candidate) {
                                 return product->Run(device, pointers, candidate);
                               }));
      best = choice.index;
      std::vector<std::string> names;
      for (int i = 0; i < product->candidates(); ++i) names.push_back(product->NameOf(i));
      KeepChoice(device, key, choice, names);
    }
    product->Keep(best);
  }
  return std::shared_ptr<MatrixProduct>(std::move(product));
}

}  // namespace

absl::StatusOr<std::unique_ptr<CudaPlan>> FullyConnectedPlanner::Prepare(
    const OpSignature& signature) {
  const OpDesc& desc = signature.desc;
  auto found = chosen_.find(desc);
  if (found == chosen_.end()) {
    absl::StatusOr<std::shared_ptr<MatrixProduct>> product = Chosen(device_, signature);
    if (!product.ok()) return Annotate(product.status(), ToString(desc));
    if (chosen_.size() >= kChosenMax) chosen_.clear();
    found = chosen_.emplace(desc, *std::move(product)).first;
  }
  auto plan = std::make_unique<FullyConnectedPlan>(signature, device_, found->second);
  if (const absl::Status reserved = device_.ReserveWorkspace(plan->WorkspaceBytes());
      !reserved.ok()) {
    return Annotate(reserved, ToString(desc));
  }
  return std::unique_ptr<CudaPlan>(std::move(plan));
}

}  // namespace capstan::kernels::cuda
