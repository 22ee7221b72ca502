#include "kernels/cuda/plans/convolution.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "kernels/cuda/own/convolution_kernels.h"
#include "kernels/cuda/own/element_kernels.h"
#include "kernels/cuda/own/image_kernels.h"
#include "kernels/cuda/plans/folded_convolution.h"
#include "kernels/cuda/plans/measure.h"
#include "kernels/cuda/plans/status.h"

namespace capstan::kernels::cuda {
namespace {

// The most fused plans to time. For bf16 and fp16 cuDNN compiles each for a second or two; for fp32
// they are ready.
int FusedCandidatesMax(Compute compute) {
  return IsHalf(TensorTypeOf(compute)) ? 3 : kCandidatesMax;
}

absl::Status Execute(Device& device, const ConvolutionEngine& engine, const Descriptor& pack) {
  CAPSTAN_CUDNN_CHECK(cudnnBackendExecute(device.cudnn(), engine.plan.get(), pack.get()),
                      "running a convolution");
  return absl::OkStatus();
}

// The indices of the operands in a signature: inputs first, then outputs, as in op.h.
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

// Enqueues bias and ReLU of a forward convolution, in place. `bias` is null if it has none.
absl::Status LaunchEpilogue(Device& device, const OpDesc& d, const void* bias, void* y) {
  const cudaError_t error = LaunchBias({.type = ElementOf(device.options().compute),
                                        .n = d.n * d.out_h * d.out_w * d.out_c,
                                        .c = static_cast<int>(d.out_c),
                                        .bias = static_cast<const float*>(bias),
                                        .relu = d.fuse_relu,
                                        .y = y},
                                       device.stream());
  if (error == cudaSuccess) return absl::OkStatus();
  return FromCuda(error, absl::StrCat("launching ", ToString(d)));
}

// Memory in which plans are timed.
struct Scratch {
  DeviceMemory memory;
  int64_t bytes = 0;
};

// Allocates the largest workspace among the plans' for which there is memory.
// Errors: kResourceExhausted  there is not enough memory for any plan.
absl::StatusOr<Scratch> ScratchFor(Device& device, const std::vector<ConvolutionEngine>& engines) {
  std::set<int64_t, std::greater<>> sizes;
  for (const ConvolutionEngine& engine : engines) sizes.insert(engine.workspace_bytes);
  absl::Status failure;
  for (const int64_t bytes : sizes) {
    absl::StatusOr<DeviceMemory> memory = device.Allocate(bytes, "timing of plans");
    if (memory.ok()) return Scratch{*std::move(memory), bytes};
    failure = memory.status();
    if (!absl::IsResourceExhausted(failure)) break;
  }
  return failure;
}

// Checks that a plan's ReLU lets NaN pass: a kernel that computes max(y, 0) may turn NaN into 0.
// Runs the plan once on x full of NaN, and then restores x.
// Errors: kUnimplemented  it does not.
absl::Status CheckNanPasses(Device& device, const OpSignature& s, const Rehearsal& rehearsal,
                            const ConvolutionEngine& engine, const Descriptor& pack) {
  const OpDesc& d = s.desc;
  void* const x = rehearsal.operand(0);
  CAPSTAN_CUDA_CHECK(
      cudaMemsetAsync(x, 0xFF, static_cast<size_t>(BytesOf(s.inputs[0])), device.stream()),
      "filling an operand with NaN");
  const absl::Status ran = Execute(device, engine, pack);
  CAPSTAN_RETURN_IF_ERROR(FillUniform(device, s.inputs[0], x));
  CAPSTAN_RETURN_IF_ERROR(ran);
  const int64_t bytes = kernels::BytesOf(s.outputs[0].dtype);
  const int64_t middle = (d.out_h / 2 * d.out_w + d.out_w / 2) * d.out_c;
  uint32_t y = 0;
  CAPSTAN_CUDA_CHECK(
      cudaMemcpyAsync(&y,
                      static_cast<const char*>(rehearsal.operand(s.input_count)) + middle * bytes,
                      static_cast<size_t>(bytes), cudaMemcpyDeviceToHost, device.stream()),
      "reading a result");
  CAPSTAN_RETURN_IF_ERROR(device.AwaitStream(device.stream()));
  const Element element = ElementOf(device.options().compute);
  const bool is_nan = element == Element::kBf16   ? (y & 0x7FFF) > 0x7F80
                      : element == Element::kFp16 ? (y & 0x7FFF) > 0x7C00
                                                  : (y & 0x7FFFFFFF) > 0x7F800000;
  return is_nan ? absl::OkStatus() : absl::UnimplementedError("the plan's ReLU drops NaN");
}

// Times the engines and chooses the fastest. Leaves out those that need more than the scratch, and
// those that would hide NaN. Plans without bias and ReLU are timed with the kernel that follows.
absl::StatusOr<Choice> Fastest(Device& device, const OpSignature& signature,
                               const Rehearsal& rehearsal, const Scratch& scratch,
                               const std::vector<ConvolutionEngine>& engines) {
  const Order order = OrderOf(signature);
  const OpDesc& desc = signature.desc;
  ConvolutionPointers pointers = {rehearsal.operand(order.x), rehearsal.operand(order.weight),
                                  rehearsal.operand(order.y)};
  CAPSTAN_ASSIGN_OR_RETURN(const Descriptor plain, PackOf(pointers, scratch.memory.get()));
  if (HasEpilogue(desc) && desc.has_bias) pointers.bias = rehearsal.operand(2);
  CAPSTAN_ASSIGN_OR_RETURN(const Descriptor fused, PackOf(pointers, scratch.memory.get()));
  std::vector<absl::Status> fit;  // Indexed by candidate; not OK: left out.
  for (const ConvolutionEngine& engine : engines) {
    if (engine.workspace_bytes > scratch.bytes) {
      fit.push_back(absl::ResourceExhaustedError("no memory for the plan's workspace"));
    } else if (engine.is_fused && desc.fuse_relu) {
      fit.push_back(CheckNanPasses(device, signature, rehearsal, engine, fused));
    } else {
      fit.push_back(absl::OkStatus());
    }
  }
  return Choose(device, static_cast<int>(engines.size()), [&](int candidate) -> absl::Status {
    CAPSTAN_RETURN_IF_ERROR(fit[static_cast<size_t>(candidate)]);
    const ConvolutionEngine& engine = engines[static_cast<size_t>(candidate)];
    if (engine.is_fused) return Execute(device, engine, fused);
    CAPSTAN_RETURN_IF_ERROR(Execute(device, engine, plain));
    return HasEpilogue(desc) ? LaunchEpilogue(device, desc, pointers.bias, pointers.y)
                             : absl::OkStatus();
  });
}

// The plan of one convolution. Its workspace begins with cuDNN's; then comes a copy of the weights
// if they are not aligned, or dweight as cuDNN writes it; then a copy of a fused plan's bias if it
// is not aligned. The sums of dbias run after the convolution and use cuDNN's part.
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
    bias_at_ = weight_at_ + RoundUp(4 * d.out_c * d.kernel * d.kernel * d.c);
  }

  int64_t WorkspaceBytes() const { return bias_at_ + 4 * desc().out_c; }

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

  // Runs the engine. It keeps the list of operands from run to run, since addresses seldom change.
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
    void* bias = desc().has_bias ? in[2].data : nullptr;
    if (engine_ == nullptr) {
      CAPSTAN_RETURN_IF_ERROR(
          Launched(LaunchConvolutionForward(Args({in[0].data, in[1].data, y.data}), stream())));
    } else {
      CAPSTAN_RETURN_IF_ERROR(CheckAligned(in[0], "x"));
      CAPSTAN_RETURN_IF_ERROR(CheckAligned(y, "y"));
      CAPSTAN_ASSIGN_OR_RETURN(void* const weight, AlignedInput(in[1], weight_at_));
      if (engine_->is_fused) {
        if (desc().has_bias) {
          CAPSTAN_ASSIGN_OR_RETURN(bias, AlignedInput(in[2], bias_at_));
        }
        return Run({in[0].data, weight, y.data, bias});
      }
      CAPSTAN_RETURN_IF_ERROR(Run({in[0].data, weight, y.data}));
    }
    if (!HasEpilogue(desc())) return absl::OkStatus();
    return LaunchEpilogue(device(), desc(), bias, y.data);
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
      // cuDNN writes dweight in the type of the other tensors.
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
                                      .scratch = Workspace(0),
                                      .strips_done = device().strips_done()},
                                     stream()));
  }

  const std::shared_ptr<const ConvolutionEngine> engine_;
  int64_t weight_at_ = 0;
  int64_t bias_at_ = 0;
  Descriptor pack_;
  ConvolutionPointers packed_;
  void* packed_workspace_ = nullptr;
};

}  // namespace

absl::StatusOr<ConvolutionPlanner::Offer> ConvolutionPlanner::Offered(const OpDesc& desc) {
  const bool measured = device_.options().plan_choice == PlanChoice::kMeasured;
  CudaOptions options = device_.options();
  if (!measured) {
    options.workspace_bytes_max = std::min(options.workspace_bytes_max, kSureWorkspaceBytesMax);
  }
  Offer offer;
  absl::StatusOr<std::vector<ConvolutionEngine>> plain = EnginesFor(
      device_.cudnn(), desc, options, measured ? kCandidatesMax : 1, Fusion::kNone, &offer.refused);
  if (absl::IsUnimplemented(plain.status())) return offer;
  CAPSTAN_RETURN_IF_ERROR(plain.status());
  offer.engines = *std::move(plain);
  if (!measured || !HasEpilogue(desc)) return offer;
  // An error here is ignored: fused plans are optional, and need a compiler that may be missing.
  absl::StatusOr<std::vector<ConvolutionEngine>> fused =
      EnginesFor(device_.cudnn(), desc, options, FusedCandidatesMax(device_.options().compute),
                 Fusion::kBiasRelu);
  if (fused.ok()) std::move(fused->begin(), fused->end(), std::back_inserter(offer.engines));
  return offer;
}

absl::StatusOr<int> ConvolutionPlanner::Measured(const OpSignature& signature,
                                                 const std::string& key, const Offer& offer) {
  const absl::StatusOr<Rehearsal> rehearsal = Rehearsal::Create(device_, signature);
  absl::StatusOr<Scratch> scratch =
      rehearsal.ok() ? ScratchFor(device_, offer.engines) : rehearsal.status();
  // Nothing can be timed on a full card; the library's first choice needs no memory for timing.
  if (absl::IsResourceExhausted(scratch.status())) return 0;
  CAPSTAN_RETURN_IF_ERROR(scratch.status());
  CAPSTAN_ASSIGN_OR_RETURN(const Choice best,
                           Fastest(device_, signature, *rehearsal, *scratch, offer.engines));
  std::vector<std::string> names, refused;
  for (const ConvolutionEngine& engine : offer.engines) names.push_back(engine.name);
  for (const RefusedPlan& plan : offer.refused) {
    names.push_back(plan.name);
    refused.push_back(plan.why);
  }
  KeepChoice(device_, key, best, names, refused);
  return best.index;
}

absl::StatusOr<ConvolutionPlanner::Engine> ConvolutionPlanner::EngineOf(
    const OpSignature& signature) {
  const std::string key = PlanKey(device_, ToString(signature.desc));
  if (const std::string kept = KeptPlan(device_, key); !kept.empty()) {
    absl::StatusOr<ConvolutionEngine> found =
        EngineNamed(device_.cudnn(), signature.desc, device_.options(), kept);
    if (found.ok()) return std::make_shared<const ConvolutionEngine>(*std::move(found));
  }
  CAPSTAN_ASSIGN_OR_RETURN(Offer offer, Offered(signature.desc));
  if (offer.engines.empty()) return Engine();
  int best = 0;
  if (offer.engines.size() > 1) {
    CAPSTAN_ASSIGN_OR_RETURN(best, Measured(signature, key, offer));
  }
  return std::make_shared<const ConvolutionEngine>(
      std::move(offer.engines[static_cast<size_t>(best)]));
}

absl::StatusOr<ConvolutionPlanner::Engine> ConvolutionPlanner::SmallerThan(
    const ConvolutionEngine& engine, const OpDesc& desc) {
  if (engine.workspace_bytes == 0) return absl::UnimplementedError("it needs no workspace");
  CudaOptions options = device_.options();
  options.workspace_bytes_max = engine.workspace_bytes - 1;
  CAPSTAN_ASSIGN_OR_RETURN(std::vector<ConvolutionEngine> engines,
                           EnginesFor(device_.cudnn(), desc, options, kCandidatesMax));
  const auto least = std::min_element(engines.begin(), engines.end(),
                                      [](const ConvolutionEngine& a, const ConvolutionEngine& b) {
                                        return a.workspace_bytes < b.workspace_bytes;
                                      });
  if (options.say != nullptr) {
    options.say(absl::StrCat(ToString(desc), ": no memory for the workspace of ",
                             engine.workspace_bytes, " bytes; a plan that may be slower takes ",
                             least->workspace_bytes));
  }
  return std::make_shared<const ConvolutionEngine>(std::move(*least));
}

absl::StatusOr<std::unique_ptr<CudaPlan>> ConvolutionPlanner::Prepare(
    const OpSignature& signature) {
  if (const std::optional<OpSignature> folded = FoldedSignature(signature); folded.has_value()) {
    absl::StatusOr<std::unique_ptr<CudaPlan>> plan = PrepareFolded(signature, *folded);
    const bool measured = device_.options().plan_choice == PlanChoice::kMeasured;
    if (!measured || !absl::IsResourceExhausted(plan.status())) return plan;
  }
  CAPSTAN_ASSIGN_OR_RETURN(Prepared prepared, PrepareDirect(signature));
  return std::move(prepared.plan);
}

absl::StatusOr<std::unique_ptr<CudaPlan>> ConvolutionPlanner::PrepareFolded(
    const OpSignature& signature, const OpSignature& folded) {
  CAPSTAN_ASSIGN_OR_RETURN(Prepared inner, PrepareDirect(folded));
  auto plan = std::make_unique<FoldedConvolution>(signature, device_, std::move(inner.plan),
                                                  inner.workspace_bytes);
  const absl::Status reserved = device_.ReserveWorkspace(plan->WorkspaceBytes());
  if (!reserved.ok()) return Annotate(reserved, ToString(signature.desc));
  return std::unique_ptr<CudaPlan>(std::move(plan));
}

absl::StatusOr<ConvolutionPlanner::Prepared> ConvolutionPlanner::PrepareDirect(
    const OpSignature& signature) {
  const OpDesc& desc = signature.desc;
  auto found = chosen_.find(desc);
  if (found == chosen_.end()) {
    absl::StatusOr<Engine> engine = EngineOf(signature);
    if (!engine.ok()) return Annotate(engine.status(), ToString(desc));
    if (chosen_.size() >= kChosenMax) chosen_.clear();
    found = chosen_.emplace(desc, *std::move(engine)).first;
  }
  Engine& engine = found->second;
  for (;;) {
    auto plan = std::make_unique<ConvolutionPlan>(signature, device_, engine);
    const int64_t bytes = plan->WorkspaceBytes();
    const absl::Status reserved = device_.ReserveWorkspace(bytes);
    if (reserved.ok()) return Prepared{std::move(plan), bytes};
    const bool measured = device_.options().plan_choice == PlanChoice::kMeasured;
    if (engine == nullptr || !measured || !absl::IsResourceExhausted(reserved)) {
      return Annotate(reserved, ToString(desc));
    }
    absl::StatusOr<Engine> smaller = SmallerThan(*engine, desc);
    if (!smaller.ok()) return Annotate(reserved, ToString(desc));
    engine = *std::move(smaller);  // It needs less each time, so the loop ends.
  }
}

}  // namespace capstan::kernels::cuda
