#include "kernels/cuda/plans/folded_convolution.h"

#include <utility>
#include <vector>

#include "common/status/status_macros.h"

namespace capstan::kernels::cuda {
namespace {

FoldArgs FoldOfOp(const OpDesc& d) { return FoldOf(WindowShapeOf(d), static_cast<int>(d.out_c)); }

// The operands of a signature that hold the images, and the weights or their gradient.
const Operand& ImagesOf(const OpSignature& signature) { return signature.inputs[0]; }
const Operand& WeightsOf(const OpSignature& signature) {
  return signature.desc.kind == OpKind::kConvolutionForward ? signature.inputs[1]
                                                            : signature.outputs[0];
}

}  // namespace

std::optional<OpSignature> FoldedSignature(const OpSignature& signature) {
  const OpDesc& d = signature.desc;
  const DataType dtype = ImagesOf(signature).dtype;
  if (!IsHalf(dtype) || d.kind == OpKind::kConvolutionBackwardData || d.stride != 2 ||
      d.kernel <= d.stride || d.c > kFoldedChannelsMax) {
    return std::nullopt;
  }
  const FoldArgs fold = FoldOfOp(d);
  OpDesc folded = d;
  folded.h = fold.h;
  folded.w = fold.w;
  folded.c = fold.c;
  folded.kernel = fold.kernel;
  folded.stride = 1;
  folded.padding = 0;
  const absl::StatusOr<OpSignature> made = MakeSignature(folded);
  if (!made.ok() || BytesOf(ImagesOf(*made)) > kSureWorkspaceBytesMax) return std::nullopt;
  return WithTensorType(*made, dtype);
}

FoldedConvolution::FoldedConvolution(const OpSignature& signature, Device& device,
                                     std::unique_ptr<CudaPlan> inner, int64_t inner_bytes)
    : CudaPlan(signature, device),
      fold_(FoldOfOp(desc())),
      inner_(std::move(inner)),
      x_at_(RoundUp(inner_bytes)),
      weight_at_(x_at_ + RoundUp(BytesOf(ImagesOf(inner_->signature())))) {}

int64_t FoldedConvolution::WorkspaceBytes() const {
  return weight_at_ + BytesOf(WeightsOf(inner_->signature()));
}

TensorView FoldedConvolution::FoldedImages() const {
  const Operand& x = ImagesOf(inner_->signature());
  return {Workspace(x_at_), x.count, x.dtype};
}

TensorView FoldedConvolution::FoldedWeights() const {
  const Operand& weights = WeightsOf(inner_->signature());
  return {Workspace(weight_at_), weights.count, weights.dtype};
}

absl::Status FoldedConvolution::FoldImages(const TensorView& x) {
  return Launched(LaunchFoldImages(fold_, static_cast<const uint16_t*>(x.data),
                                   static_cast<uint16_t*>(Workspace(x_at_)), stream()));
}

absl::Status FoldedConvolution::Execute(Views in, Views out, const RunOptions& options) {
  return desc().kind == OpKind::kConvolutionForward ? Forward(in, out, options)
                                                    : BackwardWeights(in, out, options);
}

absl::Status FoldedConvolution::Forward(Views in, Views out, const RunOptions& options) {
  CAPSTAN_RETURN_IF_ERROR(FoldImages(in[0]));
  CAPSTAN_RETURN_IF_ERROR(
      Launched(LaunchFoldWeights(fold_, static_cast<const uint16_t*>(in[1].data),
                                 static_cast<uint16_t*>(Workspace(weight_at_)), stream())));
  std::vector<TensorView> inputs(in.begin(), in.end());
  inputs[0] = FoldedImages();
  inputs[1] = FoldedWeights();
  return inner_->Execute(inputs, out, options);
}

absl::Status FoldedConvolution::BackwardWeights(Views in, Views out, const RunOptions& options) {
  CAPSTAN_RETURN_IF_ERROR(FoldImages(in[0]));
  const TensorView inputs[] = {FoldedImages(), in[1]};
  std::vector<TensorView> outputs(out.begin(), out.end());
  outputs[0] = FoldedWeights();
  CAPSTAN_RETURN_IF_ERROR(inner_->Execute(inputs, absl::MakeConstSpan(outputs), options));
  return Launched(LaunchUnfoldWeights(fold_, outputs[0].f32(), out[0].f32(), stream()));
}

}  // namespace capstan::kernels::cuda
