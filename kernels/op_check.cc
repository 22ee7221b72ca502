#include "kernels/op_check.h"

#include <cmath>
#include <cstddef>
#include <initializer_list>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/random/philox.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "kernels/activation.h"

namespace capstan::kernels {
namespace {

absl::Status OutOfRange(const char* field, int64_t value, const char* expected) {
  return absl::InvalidArgumentError(absl::StrCat(field, " is ", value, ", expected ", expected));
}

absl::Status CheckPositive(const char* field, int64_t value) {
  if (value < 1 || value > kOperandElementsMax) return OutOfRange(field, value, ">= 1 and < 2^31");
  return absl::OkStatus();
}

// Builds a signature; Finish returns an error for the first operand that is too large.
class Builder {
 public:
  explicit Builder(const OpDesc& desc) { signature_.desc = desc; }

  void In(const char* name, std::initializer_list<int64_t> shape,
          DataType dtype = DataType::kFloat32) {
    signature_.inputs[static_cast<size_t>(signature_.input_count++)] = Make(name, shape, dtype);
  }
  void Out(const char* name, std::initializer_list<int64_t> shape,
           DataType dtype = DataType::kFloat32) {
    signature_.outputs[static_cast<size_t>(signature_.output_count++)] = Make(name, shape, dtype);
  }
  absl::StatusOr<OpSignature> Finish() const {
    if (!status_.ok()) return status_;
    return signature_;
  }

 private:
  Operand Make(const char* name, std::initializer_list<int64_t> shape, DataType dtype) {
    int64_t count = 1;
    bool fits = true;
    for (const int64_t d : shape) {
      if (d == 0) {
        count = 0;
        fits = true;
        break;
      }
      if (fits && count > kOperandElementsMax / d) fits = false;
      if (fits) count *= d;
    }
    if (!fits && status_.ok()) {
      status_ = absl::InvalidArgumentError(
          absl::StrCat(name, " has more elements than the ", kOperandElementsMax, " allowed"));
    }
    return {name, count, dtype};
  }

  OpSignature signature_;
  absl::Status status_;
};

absl::Status CheckImage(const OpDesc& d) {
  CAPSTAN_RETURN_IF_ERROR(CheckPositive("h", d.h));
  CAPSTAN_RETURN_IF_ERROR(CheckPositive("w", d.w));
  return CheckPositive("c", d.c);
}

absl::Status CheckMatrix(const OpDesc& d) {
  if (d.h != 1) return OutOfRange("h", d.h, "1 for a matrix");
  if (d.w != 1) return OutOfRange("w", d.w, "1 for a matrix");
  return CheckPositive("c", d.c);
}

// Checks one axis of a window op. REQUIRES: kernel, stride and padding are in range.
absl::Status CheckAxis(const OpDesc& d, const char* in_name, int64_t in, const char* out_name,
                       int64_t out) {
  if (in + 2 * d.padding < d.kernel) {
    return absl::InvalidArgumentError(absl::StrCat("kernel is ", d.kernel, ", expected at most ",
                                                   in_name,
                                                   " + 2 * padding = ", in + 2 * d.padding));
  }
  const int64_t expected = (in + 2 * d.padding - d.kernel) / d.stride + 1;
  if (out == expected) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(out_name, " is ", out, ", expected (", in_name,
                   " + 2 * padding - kernel) / stride + 1 = ", expected));
}

absl::Status CheckWindow(const OpDesc& d) {
  CAPSTAN_RETURN_IF_ERROR(CheckImage(d));
  CAPSTAN_RETURN_IF_ERROR(CheckPositive("kernel", d.kernel));
  CAPSTAN_RETURN_IF_ERROR(CheckPositive("stride", d.stride));
  CAPSTAN_RETURN_IF_ERROR(CheckPositive("out_c", d.out_c));
  if (d.padding < 0 || d.padding >= d.kernel) {
    return OutOfRange("padding", d.padding,
                      absl::StrCat("0 <= padding < kernel = ", d.kernel).c_str());
  }
  CAPSTAN_RETURN_IF_ERROR(CheckAxis(d, "h", d.h, "out_h", d.out_h));
  return CheckAxis(d, "w", d.w, "out_w", d.out_w);
}

absl::StatusOr<OpSignature> Convolution(const OpDesc& d) {
  CAPSTAN_RETURN_IF_ERROR(CheckWindow(d));
  Builder b(d);
  const auto weight = {d.out_c, d.kernel, d.kernel, d.c};
  const auto x = {d.n, d.h, d.w, d.c};
  const auto y = {d.n, d.out_h, d.out_w, d.out_c};
  if (d.kind == OpKind::kConvolutionForward) {
    b.In("x", x);
    b.In("weight", weight);
    if (d.has_bias) b.In("bias", {d.out_c});
    b.Out("y", y);
  } else if (d.kind == OpKind::kConvolutionBackwardData) {
    b.In("dy", y);
    b.In("weight", weight);
    b.Out("dx", x);
  } else {
    b.In("x", x);
    b.In("dy", y);
    b.Out("dweight", weight);
    if (d.has_bias) b.Out("dbias", {d.out_c});
  }
  return b.Finish();
}

absl::StatusOr<OpSignature> Pool(const OpDesc& d) {
  CAPSTAN_RETURN_IF_ERROR(CheckWindow(d));
  if (d.out_c != d.c) {
    return OutOfRange("out_c", d.out_c, absl::StrCat("c = ", d.c, " of a pool").c_str());
  }
  Builder b(d);
  const auto x = {d.n, d.h, d.w, d.c};
  const auto y = {d.n, d.out_h, d.out_w, d.c};
  switch (d.kind) {
    case OpKind::kMaxPoolForward:
      b.In("x", x);
      b.Out("y", y);
      b.Out("index", y, DataType::kInt32);
      break;
    case OpKind::kMaxPoolBackward:
      b.In("dy", y);
      b.In("index", y, DataType::kInt32);
      b.Out("dx", x);
      break;
    case OpKind::kAveragePoolForward:
      b.In("x", x);
      b.Out("y", y);
      break;
    default:
      b.In("dy", y);
      b.Out("dx", x);
  }
  return b.Finish();
}

absl::StatusOr<OpSignature> FullyConnected(const OpDesc& d) {
  CAPSTAN_RETURN_IF_ERROR(CheckMatrix(d));
  CAPSTAN_RETURN_IF_ERROR(CheckPositive("out_c", d.out_c));
  Builder b(d);
  if (d.kind == OpKind::kFullyConnectedForward) {
    b.In("x", {d.n, d.c});
    b.In("weight", {d.out_c, d.c});
    if (d.has_bias) b.In("bias", {d.out_c});
    b.Out("y", {d.n, d.out_c});
  } else if (d.kind == OpKind::kFullyConnectedBackwardData) {
    b.In("dy", {d.n, d.out_c});
    b.In("weight", {d.out_c, d.c});
    b.Out("dx", {d.n, d.c});
  } else {
    b.In("x", {d.n, d.c});
    b.In("dy", {d.n, d.out_c});
    b.Out("dweight", {d.out_c, d.c});
    if (d.has_bias) b.Out("dbias", {d.out_c});
  }
  return b.Finish();
}

absl::Status CheckEpsilon(const OpDesc& d) {
  if (d.epsilon > 0.0f && std::isfinite(d.epsilon)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("epsilon is ", d.epsilon, ", expected > 0 and finite"));
}

absl::StatusOr<OpSignature> LayerNorm(const OpDesc& d) {
  CAPSTAN_RETURN_IF_ERROR(CheckImage(d));
  CAPSTAN_RETURN_IF_ERROR(CheckEpsilon(d));
  Builder b(d);
  const auto x = {d.n, d.h, d.w, d.c};
  const auto moments = {d.n, d.h, d.w};
  b.In("x", x);
  if (d.kind == OpKind::kLayerNormForward) {
    b.In("scale", {d.c});
    b.In("shift", {d.c});
    b.Out("y", x);
    b.Out("mean", moments);
    b.Out("variance", moments);
  } else {
    b.In("dy", x);
    b.In("scale", {d.c});
    b.In("mean", moments);
    b.In("variance", moments);
    b.Out("dx", x);
    b.Out("dscale", {d.c});
    b.Out("dshift", {d.c});
  }
  return b.Finish();
}

absl::StatusOr<OpSignature> RmsNorm(const OpDesc& d) {
  CAPSTAN_RETURN_IF_ERROR(CheckImage(d));
  CAPSTAN_RETURN_IF_ERROR(CheckEpsilon(d));
  Builder b(d);
  const auto x = {d.n, d.h, d.w, d.c};
  const bool forward = d.kind == OpKind::kRmsNormForward;
  b.In("x", x);
  if (!forward) b.In("dy", x);
  b.In("scale", {d.c});
  if (!forward) b.In("mean_square", {d.n, d.h, d.w});
  b.Out(forward ? "y" : "dx", x);
  if (forward) {
    b.Out("mean_square", {d.n, d.h, d.w});
  } else {
    b.Out("dscale", {d.c});
  }
  return b.Finish();
}

absl::StatusOr<OpSignature> BatchNorm(const OpDesc& d) {
  CAPSTAN_RETURN_IF_ERROR(CheckImage(d));
  CAPSTAN_RETURN_IF_ERROR(CheckEpsilon(d));
  if (d.has_addend && !d.fuse_relu) {
    return absl::InvalidArgumentError("has_addend without fuse_relu, expected both");
  }
  const bool backward = d.kind == OpKind::kBatchNormBackward;
  if (d.has_dy2 && !(backward && d.has_addend)) {
    return absl::InvalidArgumentError("has_dy2, expected it with has_addend alone, of a gradient");
  }
  Builder b(d);
  const auto x = {d.n, d.h, d.w, d.c};
  b.In("x", x);
  if (backward) b.In("dy", x);
  b.In("scale", {d.c});
  if (!backward) b.In("shift", {d.c});
  if (d.kind != OpKind::kBatchNormForward) {
    b.In("mean", {d.c});
    b.In("variance", {d.c});
  }
  if (backward && d.fuse_relu && !d.has_addend) b.In("shift", {d.c});
  if (d.has_addend) b.In(backward ? "y" : "addend", x);
  if (d.has_dy2) b.In("dy2", x);
  b.Out(backward ? "dx" : "y", x);
  if (d.kind == OpKind::kBatchNormForward) {
    b.Out("mean", {d.c});
    b.Out("variance", {d.c});
  } else if (backward) {
    b.Out("dscale", {d.c});
    b.Out("dshift", {d.c});
    if (d.has_addend) b.Out("dsum", x);
  }
  return b.Finish();
}

absl::StatusOr<OpSignature> Elementwise(const OpDesc& d) {
  CAPSTAN_RETURN_IF_ERROR(CheckImage(d));
  const bool dropout = d.kind == OpKind::kDropoutForward || d.kind == OpKind::kDropoutBackward;
  if (dropout && !(d.dropout_rate >= 0.0f && d.dropout_rate < 1.0f)) {
    return absl::InvalidArgumentError(
        absl::StrCat("dropout_rate is ", d.dropout_rate, ", expected 0 <= rate < 1"));
  }
  const bool activates =
      d.kind == OpKind::kActivationForward || d.kind == OpKind::kActivationBackward;
  if (activates && static_cast<size_t>(d.activation) >= std::size(kActivationNames)) {
    return OutOfRange("activation", static_cast<int64_t>(d.activation), "one of Activation");
  }
  Builder b(d);
  const auto x = {d.n, d.h, d.w, d.c};
  switch (d.kind) {
    case OpKind::kReluBackward:
      b.In("y", x);
      b.In("dy", x);
      b.Out("dx", x);
      break;
    case OpKind::kActivationBackward:
      b.In("x", x);
      b.In("dy", x);
      b.Out("dx", x);
      break;
    case OpKind::kAdd:
      b.In("a", x);
      b.In("b", x);
      b.Out("y", x);
      break;
    case OpKind::kDropoutForward:
      b.In("x", x);
      b.In("key", {kKeyWords}, DataType::kInt32);
      b.Out("y", x);
      break;
    case OpKind::kDropoutBackward:
      b.In("dy", x);
      b.In("key", {kKeyWords}, DataType::kInt32);
      b.Out("dx", x);
      break;
    default:
      b.In("x", x);
      b.Out("y", x);
  }
  return b.Finish();
}

absl::StatusOr<OpSignature> SoftmaxCrossEntropy(const OpDesc& d) {
  CAPSTAN_RETURN_IF_ERROR(CheckMatrix(d));
  Builder b(d);
  if (d.kind == OpKind::kSoftmaxCrossEntropyForward) {
    b.In("logits", {d.n, d.c});
    b.In("labels", {d.n}, DataType::kInt32);
    if (d.has_weights) b.In("weights", {d.c});
    b.Out("probabilities", {d.n, d.c});
    b.Out("loss", {d.n});
  } else {
    b.In("probabilities", {d.n, d.c});
    b.In("labels", {d.n}, DataType::kInt32);
    if (d.has_weights) b.In("weights", {d.c});
    b.Out("dlogits", {d.n, d.c});
  }
  return b.Finish();
}

absl::Status CheckOutputLoss(const OpDesc& d) {
  const auto wrong = [&d](const char* expected) {
    return absl::InvalidArgumentError(
        absl::StrCat("loss_parameter is ", d.loss_parameter, ", expected ", expected));
  };
  if (d.has_weights && d.loss != OutputLoss::kSigmoid) {
    return absl::InvalidArgumentError("has_weights, expected weights with a sigmoid alone");
  }
  switch (d.loss) {
    case OutputLoss::kHuber:
      return d.loss_parameter > 0 && std::isfinite(d.loss_parameter)
                 ? absl::OkStatus()
                 : wrong("a number above 0 (huber)");
    case OutputLoss::kQuantile:
      return d.loss_parameter > 0 && d.loss_parameter < 1 ? absl::OkStatus()
                                                          : wrong("one in (0, 1) (quantile)");
    case OutputLoss::kSquared:
    case OutputLoss::kSigmoid:
      return absl::OkStatus();
  }
  return OutOfRange("loss", static_cast<int64_t>(d.loss), "one of OutputLoss");
}

absl::StatusOr<OpSignature> OutputLossOp(const OpDesc& d) {
  CAPSTAN_RETURN_IF_ERROR(CheckMatrix(d));
  CAPSTAN_RETURN_IF_ERROR(CheckOutputLoss(d));
  Builder b(d);
  b.In("logits", {d.n, d.c});
  b.In("targets", {d.n, d.c});
  if (d.has_weights) b.In("weights", {d.c});
  if (d.kind == OpKind::kOutputLossForward) {
    b.Out("loss", {d.n});
  } else {
    b.Out("dlogits", {d.n, d.c});
  }
  return b.Finish();
}

absl::StatusOr<OpSignature> Embedding(const OpDesc& d) {
  CAPSTAN_RETURN_IF_ERROR(CheckMatrix(d));
  CAPSTAN_RETURN_IF_ERROR(CheckPositive("out_c", d.out_c));
  if (d.rows < 1 || d.rows > kEmbeddingRowsMax) {
    return OutOfRange("rows", d.rows, ">= 1 and <= 2^24 (row numbers are fp32)");
  }
  Builder b(d);
  b.In("rows", {d.n, d.c});
  if (d.kind == OpKind::kEmbeddingForward) {
    b.In("weight", {d.rows, d.out_c});
    b.Out("y", {d.n, d.c, d.out_c});
  } else {
    b.In("dy", {d.n, d.c, d.out_c});
    b.Out("dweight", {d.rows, d.out_c});
  }
  return b.Finish();
}

absl::StatusOr<OpSignature> Dispatch(const OpDesc& d) {
  if (d.n < 0 || d.n > kOperandElementsMax) return OutOfRange("n", d.n, ">= 0 and < 2^31");
  switch (d.kind) {
    case OpKind::kConvolutionForward:
    case OpKind::kConvolutionBackwardData:
    case OpKind::kConvolutionBackwardWeights:
      return Convolution(d);
    case OpKind::kMaxPoolForward:
    case OpKind::kMaxPoolBackward:
    case OpKind::kAveragePoolForward:
    case OpKind::kAveragePoolBackward:
      return Pool(d);
    case OpKind::kFullyConnectedForward:
    case OpKind::kFullyConnectedBackwardData:
    case OpKind::kFullyConnectedBackwardWeights:
      return FullyConnected(d);
    case OpKind::kBatchNormForward:
    case OpKind::kBatchNormInference:
    case OpKind::kBatchNormBackward:
      return BatchNorm(d);
    case OpKind::kLayerNormForward:
    case OpKind::kLayerNormBackward:
      return LayerNorm(d);
    case OpKind::kRmsNormForward:
    case OpKind::kRmsNormBackward:
      return RmsNorm(d);
    case OpKind::kReluForward:
    case OpKind::kReluBackward:
    case OpKind::kActivationForward:
    case OpKind::kActivationBackward:
    case OpKind::kAdd:
    case OpKind::kDropoutForward:
    case OpKind::kDropoutBackward:
      return Elementwise(d);
    case OpKind::kSoftmaxCrossEntropyForward:
    case OpKind::kSoftmaxCrossEntropyBackward:
      return SoftmaxCrossEntropy(d);
    case OpKind::kOutputLossForward:
    case OpKind::kOutputLossBackward:
      return OutputLossOp(d);
    case OpKind::kEmbeddingForward:
    case OpKind::kEmbeddingBackward:
      return Embedding(d);
  }
  return OutOfRange("kind", static_cast<int64_t>(d.kind), "one of OpKind");
}

const char* TypeName(DataType dtype) {
  switch (dtype) {
    case DataType::kFloat32:
      return "fp32";
    case DataType::kInt32:
      return "int32";
    case DataType::kBfloat16:
      return "bf16";
    case DataType::kFloat16:
      return "fp16";
  }
  return "of an unknown type";
}

bool IsTensor(absl::string_view name) {
  for (const absl::string_view one :
       {"x", "y", "dx", "dy", "dy2", "a", "b", "addend", "dsum", "weight", "logits", "dlogits"}) {
    if (name == one) return true;
  }
  return false;
}

absl::Status CheckSide(const char* side, const Operand* operands, int operand_count,
                       absl::Span<const TensorView> views) {
  if (views.size() != static_cast<size_t>(operand_count)) {
    return absl::InvalidArgumentError(
        absl::StrCat(views.size(), " ", side, "s were given, expected ", operand_count));
  }
  for (size_t i = 0; i < views.size(); ++i) {
    const TensorView& view = views[i];
    const Operand& operand = operands[i];
    if (view.count != operand.count) {
      return absl::InvalidArgumentError(absl::StrCat(side, " ", operand.name, " has ", view.count,
                                                     " elements, expected ", operand.count));
    }
    if (view.dtype != operand.dtype) {
      return absl::InvalidArgumentError(absl::StrCat(side, " ", operand.name, " is ",
                                                     TypeName(view.dtype), ", expected ",
                                                     TypeName(operand.dtype)));
    }
    if (view.data == nullptr && view.count != 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(side, " ", operand.name, " is null, expected ", view.count, " elements"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<OpSignature> MakeSignature(const OpDesc& desc) {
  absl::StatusOr<OpSignature> signature = Dispatch(desc);
  if (!signature.ok()) return Annotate(signature.status(), ToString(desc));
  return signature;
}

OpSignature WithTensorType(OpSignature signature, DataType dtype) {
  for (Operand& operand : signature.inputs) {
    if (IsTensor(operand.name)) operand.dtype = dtype;
  }
  for (Operand& operand : signature.outputs) {
    if (IsTensor(operand.name)) operand.dtype = dtype;
  }
  return signature;
}

absl::Status CheckViews(const OpSignature& signature, absl::Span<const TensorView> inputs,
                        absl::Span<const TensorView> outputs) {
  absl::Status status = CheckSide("input", signature.inputs.data(), signature.input_count, inputs);
  if (status.ok()) {
    status = CheckSide("output", signature.outputs.data(), signature.output_count, outputs);
  }
  if (status.ok()) return status;
  return Annotate(status, ToString(signature.desc));
}

absl::Status CheckLabels(absl::Span<const int32_t> labels, int64_t classes) {
  for (size_t i = 0; i < labels.size(); ++i) {
    if (labels[i] >= 0 && labels[i] < classes) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("label ", i, " is ", labels[i], ", expected 0 <= label < ", classes));
  }
  return absl::OkStatus();
}

absl::Status CheckRows(absl::Span<const float> row_numbers, int64_t rows) {
  for (size_t i = 0; i < row_numbers.size(); ++i) {
    const float row = row_numbers[i];
    if (row >= 0.0f && row < static_cast<float>(rows) && row == std::floor(row)) continue;
    return absl::InvalidArgumentError(absl::StrCat("row number ", i, " is ", row,
                                                   ", expected a whole number, 0 <= row < ", rows));
  }
  return absl::OkStatus();
}

}  // namespace capstan::kernels
