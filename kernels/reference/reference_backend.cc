#include "kernels/reference/reference_backend.h"

#include <string>

#include "common/random/philox.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "kernels/host_memory.h"
#include "kernels/op_check.h"
#include "kernels/reference/image_ops.h"
#include "kernels/reference/matrix_ops.h"

namespace capstan::kernels {
namespace {

class ReferencePlan : public Plan {
 public:
  explicit ReferencePlan(const OpSignature& signature) : signature_(signature) {}
  const OpSignature& signature() const { return signature_; }

 private:
  const OpSignature signature_;
};

namespace ref = reference;
using Views = absl::Span<const TensorView>;

// The data pointer of view `i`; null if the op lacks this (optional) operand.
float* F(Views views, size_t i) { return i < views.size() ? views[i].f32() : nullptr; }

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

void ExecuteNorm(const OpDesc& d, Views in, Views out) {
  switch (d.kind) {
    case OpKind::kLayerNormForward:
      return ref::LayerNormForward(d, F(in, 0), F(in, 1), F(in, 2), F(out, 0), F(out, 1),
                                   F(out, 2));
    case OpKind::kLayerNormBackward:
      return ref::LayerNormBackward(d, F(in, 0), F(in, 1), F(in, 2), F(in, 3), F(in, 4), F(out, 0),
                                    F(out, 1), F(out, 2));
    case OpKind::kBatchNormForward:
      return ref::BatchNormForward(d, F(in, 0), F(in, 1), F(in, 2), F(in, 3), F(out, 0), F(out, 1),
                                   F(out, 2));
    case OpKind::kBatchNormInference:
      return ref::BatchNormInference(d, F(in, 0), F(in, 1), F(in, 2), F(in, 3), F(in, 4), F(in, 5),
                                     F(out, 0));
    default: {
      // The sixth operand is y if there is an addend, else shift.
      const float* const shift = d.has_addend ? nullptr : F(in, 5);
      const float* const y = d.has_addend ? F(in, 5) : nullptr;
      return ref::BatchNormBackward(d, F(in, 0), F(in, 1), F(in, 2), F(in, 3), F(in, 4), shift, y,
                                    F(in, 6), F(out, 0), F(out, 1), F(out, 2), F(out, 3));
    }
  }
}

void Execute(const OpDesc& d, Views in, Views out, const RunOptions& options) {
  switch (d.kind) {
    case OpKind::kConvolutionForward:
      return ref::ConvolutionForward(d, F(in, 0), F(in, 1), F(in, 2), F(out, 0));
    case OpKind::kConvolutionBackwardData:
      return ref::ConvolutionBackwardData(d, F(in, 0), F(in, 1), F(out, 0));
    case OpKind::kConvolutionBackwardWeights:
      return ref::ConvolutionBackwardWeights(d, F(in, 0), F(in, 1), F(out, 0), F(out, 1));
    case OpKind::kMaxPoolForward:
      return ref::MaxPoolForward(d, F(in, 0), F(out, 0), out[1].i32());
    case OpKind::kMaxPoolBackward:
      return ref::MaxPoolBackward(d, F(in, 0), in[1].i32(), F(out, 0));
    case OpKind::kAveragePoolForward:
      return ref::AveragePoolForward(d, F(in, 0), F(out, 0));
    case OpKind::kAveragePoolBackward:
      return ref::AveragePoolBackward(d, F(in, 0), F(out, 0));
    case OpKind::kFullyConnectedForward:
      return ref::FullyConnectedForward(d, F(in, 0), F(in, 1), F(in, 2), F(out, 0));
    case OpKind::kFullyConnectedBackwardData:
      return ref::FullyConnectedBackwardData(d, F(in, 0), F(in, 1), F(out, 0));
    case OpKind::kFullyConnectedBackwardWeights:
      return ref::FullyConnectedBackwardWeights(d, F(in, 0), F(in, 1), F(out, 0), F(out, 1));
    case OpKind::kLayerNormForward:
    case OpKind::kLayerNormBackward:
    case OpKind::kBatchNormForward:
    case OpKind::kBatchNormInference:
    case OpKind::kBatchNormBackward:
      return ExecuteNorm(d, in, out);
    case OpKind::kDropoutForward:
    case OpKind::kDropoutBackward:
      return ref::Dropout(out[0].count, d.dropout_rate, KeyOfWords(in[1].i32()[0], in[1].i32()[1]),
                          F(in, 0), F(out, 0));
    case OpKind::kSoftmaxCrossEntropyForward:
      return ref::SoftmaxCrossEntropyForward(d, F(in, 0), in[1].i32(), F(in, 2), F(out, 0),
                                             F(out, 1));
    case OpKind::kSoftmaxCrossEntropyBackward:
      return ref::SoftmaxCrossEntropyBackward(d, F(in, 0), in[1].i32(), F(in, 2), options.scale,
                                              F(out, 0));
    case OpKind::kOutputLossForward:
      return ref::OutputLossForward(d, F(in, 0), F(in, 1), F(in, 2), F(out, 0));
    case OpKind::kOutputLossBackward:
      return ref::OutputLossBackward(d, F(in, 0), F(in, 1), F(in, 2), options.scale, F(out, 0));
    case OpKind::kEmbeddingForward:
      return ref::EmbeddingForward(d, F(in, 0), F(in, 1), F(out, 0));
    case OpKind::kEmbeddingBackward:
      return ref::EmbeddingBackward(d, F(in, 0), F(in, 1), F(out, 0));
    default:
      return ref::Elementwise(d, out[0].count, F(in, 0), F(in, 1), F(out, 0));
  }
}

class ReferenceBackend : public Backend {
 public:
  std::string Name() const override { return "reference"; }
  bool Supports(const OpDesc& desc) const override { return MakeSignature(desc).ok(); }

  absl::StatusOr<std::unique_ptr<Plan>> Prepare(const OpDesc& desc) override {
    CAPSTAN_ASSIGN_OR_RETURN(const OpSignature signature, MakeSignature(desc));
    return std::make_unique<ReferencePlan>(signature);
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
    Execute(signature.desc, inputs, outputs, options);
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
