#include "kernels/cpu/cpu_backend.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/status/status_macros.h"
#include "kernels/cpu/convolution.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/cpu_plan.h"
#include "kernels/cpu/onednn_convolution.h"
#include "kernels/cpu/simd/simd.h"
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

absl::StatusOr<std::unique_ptr<CpuPlan>> MakeBestConvolutionPlan(const OpSignature& signature,
                                                                 const CpuContext& context) {
  if (PrefersWinograd(signature.desc)) return MakeWinogradPlan(signature, context);
  return context.onednn && PrefersOnednn(signature.desc)
             ? MakeOnednnConvolutionPlan(signature, context)
             : MakeConvolutionPlan(signature, context);
}

constexpr CpuOp kConvolutionOps[] = {
    {OpKind::kConvolutionForward, MakeBestConvolutionPlan},
    {OpKind::kConvolutionBackwardData, MakeBestConvolutionPlan},
    {OpKind::kConvolutionBackwardWeights, MakeBestConvolutionPlan},
};

// Null: the backend lacks it.
const CpuOp* FindOp(OpKind kind) {
  for (const auto ops : {absl::MakeConstSpan(kConvolutionOps), BatchNormOps(), FullyConnectedOps(),
                         LayerNormOps(), OutputLossOps(), SimpleOps()}) {
    for (const CpuOp& op : ops) {
      if (op.kind == kind) return &op;
    }
  }
  return nullptr;
}

class CpuBackend : public Backend {
 public:
  explicit CpuBackend(const CpuOptions& options)
      : context_{SimdOf(std::min(options.instruction_set_max, BestInstructionSet())),
                 std::clamp(options.threads, 1, kThreadsMax),
                 /*onednn=*/options.instruction_set_max == InstructionSet::kAvx512} {}

  std::string Name() const override { return "cpu"; }
  bool Supports(const OpDesc& desc) const override {
    return MakeSignature(desc).ok() && FindOp(desc.kind) != nullptr;
  }

  absl::StatusOr<std::unique_ptr<Plan>> Prepare(const OpDesc& desc) override {
    CAPSTAN_ASSIGN_OR_RETURN(const OpSignature signature, MakeSignature(desc));
    const CpuOp* const op = FindOp(desc.kind);
    if (op == nullptr) {
      return absl::UnimplementedError(absl::StrCat(ToString(desc), ": the CPU backend lacks it"));
    }
    CAPSTAN_ASSIGN_OR_RETURN(std::unique_ptr<CpuPlan> plan, op->make(signature, context_));
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
