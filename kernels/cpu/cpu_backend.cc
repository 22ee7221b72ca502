#include "kernels/cpu/cpu_backend.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "kernels/cpu/batch_norm.h"
#include "kernels/cpu/convolution.h"
#include "kernels/cpu/cpu_plan.h"
#include "kernels/cpu/fully_connected.h"
#include "kernels/cpu/layer_norm.h"
#include "kernels/cpu/onednn_convolution.h"
#include "kernels/cpu/output_loss.h"
#include "kernels/cpu/simd.h"
#include "kernels/cpu/simple_ops.h"
#include "kernels/cpu/winograd.h"
#include "kernels/host_memory.h"
#include "kernels/op_check.h"

namespace capstan::kernels {
namespace {

constexpr int kThreadsMax = 1024;

const Simd* SimdOf(InstructionSet set) {
  switch (set) {
    case InstructionSet::kAvx512:
      return &kSimdAvx512;
    case InstructionSet::kAvx2:
      return &kSimdAvx2;
    case InstructionSet::kBaseline:
      break;
  }
  return &kSimdBaseline;
}

absl::StatusOr<std::unique_ptr<CpuPlan>> MakePlan(const OpSignature& signature,
                                                  const CpuContext& context) {
  switch (signature.desc.kind) {
    case OpKind::kConvolutionForward:
    case OpKind::kConvolutionBackwardData:
    case OpKind::kConvolutionBackwardWeights:
      if (PrefersWinograd(signature.desc)) return MakeWinogradPlan(signature, context);
      return context.onednn && PrefersOnednn(signature.desc)
                 ? MakeOnednnConvolutionPlan(signature, context)
                 : MakeConvolutionPlan(signature, context);
    case OpKind::kMaxPoolForward:
    case OpKind::kMaxPoolBackward:
    case OpKind::kAveragePoolForward:
    case OpKind::kAveragePoolBackward:
      return MakePoolPlan(signature, context);
    case OpKind::kFullyConnectedForward:
    case OpKind::kFullyConnectedBackwardData:
    case OpKind::kFullyConnectedBackwardWeights:
      return MakeFullyConnectedPlan(signature, context);
    case OpKind::kBatchNormForward:
    case OpKind::kBatchNormInference:
    case OpKind::kBatchNormBackward:
      return MakeBatchNormPlan(signature, context);
    case OpKind::kLayerNormForward:
    case OpKind::kLayerNormBackward:
      return MakeLayerNormPlan(signature, context);
    case OpKind::kSoftmaxCrossEntropyForward:
    case OpKind::kSoftmaxCrossEntropyBackward:
      return MakeSoftmaxPlan(signature, context);
    case OpKind::kOutputLossForward:
    case OpKind::kOutputLossBackward:
      return MakeOutputLossPlan(signature, context);
    case OpKind::kEmbeddingForward:
    case OpKind::kEmbeddingBackward:
      return MakeEmbeddingPlan(signature, context);
    default:
      return MakeElementwisePlan(signature, context);
  }
}

class CpuBackend : public Backend {
 public:
  explicit CpuBackend(const CpuOptions& options)
      : context_{SimdOf(std::min(options.instruction_set_max, BestInstructionSet())),
                 std::clamp(options.threads, 1, kThreadsMax),
                 /*onednn=*/options.instruction_set_max == InstructionSet::kAvx512} {}

  std::string Name() const override { return "cpu"; }
  bool Supports(const OpDesc& desc) const override { return MakeSignature(desc).ok(); }

  absl::StatusOr<std::unique_ptr<Plan>> Prepare(const OpDesc& desc) override {
    CAPSTAN_ASSIGN_OR_RETURN(const OpSignature signature, MakeSignature(desc));
    CAPSTAN_ASSIGN_OR_RETURN(std::unique_ptr<CpuPlan> plan, MakePlan(signature, context_));
    return std::unique_ptr<Plan>(std::move(plan));
  }

  absl::Status Run(Plan& plan, absl::Span<const TensorView> inputs,
                   absl::Span<const TensorView> outputs, const RunOptions& options) override {
    auto* cpu_plan = dynamic_cast<CpuPlan*>(&plan);
    if (cpu_plan == nullptr) {
      return absl::InvalidArgumentError("the plan was prepared by another backend");
    }
    CAPSTAN_RETURN_IF_ERROR(CheckViews(cpu_plan->signature(), inputs, outputs));
    return cpu_plan->Execute(inputs, outputs, options);
  }

  void* Allocate(int64_t bytes) override { return AllocateHost(bytes); }
  void Free(void* memory) override { std::free(memory); }
  absl::Status Copy(void* to, const void* from, int64_t bytes) override {
    return CopyHost(to, from, bytes);
  }
  absl::Status Synchronize() override { return absl::OkStatus(); }

 private:
  const CpuContext context_;
};

}  // namespace

InstructionSet BestInstructionSet() {
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw")) {
    return InstructionSet::kAvx512;
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return InstructionSet::kAvx2;
  return InstructionSet::kBaseline;
}

std::unique_ptr<Backend> MakeCpuBackend(const CpuOptions& options) {
  return std::make_unique<CpuBackend>(options);
}

}  // namespace capstan::kernels
