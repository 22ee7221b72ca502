#include "kernels/reference/reference_backend.h"

#include <string>

#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "kernels/host_memory.h"
#include "kernels/op_check.h"
#include "kernels/reference/reference_ops.h"

namespace capstan::kernels {
namespace {

class ReferencePlan : public Plan {
 public:
  ReferencePlan(const OpSignature& signature, const reference::ReferenceOp& op)
      : signature_(signature), op_(op) {}
  const OpSignature& signature() const { return signature_; }
  const reference::ReferenceOp& op() const { return op_; }

 private:
  const OpSignature signature_;
  const reference::ReferenceOp& op_;
};

using Views = absl::Span<const TensorView>;

const reference::ReferenceOp* FindOp(OpKind kind) {
  for (const auto ops : {reference::ImageOps(), reference::MatrixOps()}) {
    for (const reference::ReferenceOp& op : ops) {
      if (op.kind == kind) return &op;
    }
  }
  return nullptr;
}

// Labels and row numbers are data, so they are checked at each run.
absl::Status CheckIndices(const OpDesc& d, Views in) {
  switch (d.kind) {
    case OpKind::kSoftmaxCrossEntropyForward:
    case OpKind::kSoftmaxCrossEntropyBackward:
      return CheckLabels({in[1].i32(), static_cast<size_t>(in[1].count)}, d.c);
    case OpKind::kEmbeddingForward:
    case OpKind::kEmbeddingBackward:
      return CheckRows({in[0].f32(), static_cast<size_t>(in[0].count)}, d.rows);
    default:
      return absl::OkStatus();
  }
}

class ReferenceBackend : public Backend {
 public:
  std::string Name() const override { return "reference"; }
  bool Supports(const OpDesc& desc) const override {
    return MakeSignature(desc).ok() && FindOp(desc.kind) != nullptr;
  }

  absl::StatusOr<std::unique_ptr<Plan>> Prepare(const OpDesc& desc) override {
    CAPSTAN_ASSIGN_OR_RETURN(const OpSignature signature, MakeSignature(desc));
    const reference::ReferenceOp* const op = FindOp(desc.kind);
    if (op == nullptr) return absl::UnimplementedError(ToString(desc));
    return std::make_unique<ReferencePlan>(signature, *op);
  }

  absl::Status Run(Plan& plan, absl::Span<const TensorView> inputs,
                   absl::Span<const TensorView> outputs, const RunOptions& options) override {
    auto* reference_plan = dynamic_cast<ReferencePlan*>(&plan);
    if (reference_plan == nullptr) {
      return absl::InvalidArgumentError("the plan was prepared by another backend");
    }
    const OpSignature& signature = reference_plan->signature();
    CAPSTAN_RETURN_IF_ERROR(CheckViews(signature, inputs, outputs));
    if (const absl::Status status = CheckIndices(signature.desc, inputs); !status.ok()) {
      return Annotate(status, ToString(signature.desc));
    }
    reference_plan->op().run({signature.desc, inputs, outputs, options});
    return absl::OkStatus();
  }

  void* Allocate(int64_t bytes) override { return AllocateHost(bytes); }
  void Free(void* memory) override { std::free(memory); }
  absl::Status Copy(void* to, const void* from, int64_t bytes) override {
    return CopyHost(to, from, bytes);
  }
  absl::Status Synchronize() override { return absl::OkStatus(); }
};

}  // namespace

std::unique_ptr<Backend> MakeReferenceBackend() { return std::make_unique<ReferenceBackend>(); }

}  // namespace capstan::kernels
