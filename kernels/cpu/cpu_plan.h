// CpuPlan: the base class of every prepared op of the CPU backend, with the context in which the
// backend prepares it. CpuBackend::Run calls Execute.
//
// Thread safety: as Plan.
#ifndef CAPSTAN_KERNELS_CPU_CPU_PLAN_H_
#define CAPSTAN_KERNELS_CPU_CPU_PLAN_H_

#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kernels/cpu/simd/simd.h"
#include "kernels/op_check.h"

namespace capstan::kernels {

using Views = absl::Span<const TensorView>;

struct CpuContext {
  const Simd* simd = nullptr;  // Valid as long as the program runs.
  int threads = 1;             // >= 1.
  bool onednn = true;          // True if ops may use oneDNN.
};

class CpuPlan : public Plan {
 public:
  CpuPlan(const OpSignature& signature, const CpuContext& context)
      : signature_(signature), context_(context) {}

  const OpSignature& signature() const { return signature_; }

  // Prepares what the op needs. A plan that needs memory hides this function with its own.
  // Errors: kResourceExhausted  not enough memory for scratch.
  absl::Status Init() { return absl::OkStatus(); }

  // Runs the op. REQUIRES: CheckViews(signature(), in, out) passed.
  // Errors: kInvalidArgument  a label or a row number is out of range.
  virtual absl::Status Execute(Views in, Views out, const RunOptions& options) = 0;

 protected:
  const OpDesc& desc() const { return signature_.desc; }
  const Simd& simd() const { return *context_.simd; }
  int threads() const { return context_.threads; }

 private:
  const OpSignature signature_;
  const CpuContext context_;
};

// Makes a plan and prepares it. Errors: those of its Init.
template <typename PlanType>
absl::StatusOr<std::unique_ptr<CpuPlan>> MakeCpuPlan(const OpSignature& signature,
                                                     const CpuContext& context) {
  auto plan = std::make_unique<PlanType>(signature, context);
  if (absl::Status status = plan->Init(); !status.ok()) return status;
  return std::unique_ptr<CpuPlan>(std::move(plan));
}

// The data of operand `i`; null if the op lacks this (optional) operand.
inline float* FloatsOf(Views views, size_t i) {
  return i < views.size() ? views[i].f32() : nullptr;
}

}  // namespace capstan::kernels

#endif  // CAPSTAN_KERNELS_CPU_CPU_PLAN_H_
