// CpuPlan: what every prepared op of the CPU backend is, and the context that it is prepared in.
//
// Thread safety: as Plan.
#ifndef CAPSTAN_KERNELS_CPU_CPU_PLAN_H_
#define CAPSTAN_KERNELS_CPU_CPU_PLAN_H_

#include <memory>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kernels/cpu/simd.h"
#include "kernels/op_check.h"

namespace capstan::kernels {

using Views = absl::Span<const TensorView>;

struct CpuContext {
  const Simd* simd = nullptr;  // Lives as long as the program.
  int threads = 1;             // >= 1.
  bool onednn = true;          // Whether oneDNN may be used.
};

class CpuPlan : public Plan {
 public:
  CpuPlan(const OpSignature& signature, const CpuContext& context)
      : signature_(signature), context_(context) {}

  const OpSignature& signature() const { return signature_; }

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

// The data of operand `i`; null where the op has no such (optional) operand.
inline float* FloatsOf(Views views, size_t i) {
  return i < views.size() ? views[i].f32() : nullptr;
}

}  // namespace capstan::kernels

#endif  // CAPSTAN_KERNELS_CPU_CPU_PLAN_H_
