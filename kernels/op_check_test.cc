#include "kernels/op_check.h"

#include <catch2/catch.hpp>
#include <cstddef>
#include <limits>
#include <string>
#include <vector>

#include "common/testing/status_matchers.h"
#include "kernels/activation.h"

namespace capstan::kernels::op_check_test {
namespace {

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

OpDesc Convolution() {
  OpDesc d;
  d.kind = OpKind::kConvolutionForward;
  d.n = 64;
  d.h = d.w = 28;
  d.c = 1;
  d.out_h = d.out_w = 24;
  d.out_c = 20;
  d.kernel = 5;
  d.has_bias = true;
  return d;
}

OpDesc Matrix(OpKind kind) {
  OpDesc d;
  d.kind = kind;
  d.n = 4;
  d.c = 10;
  d.out_c = 3;
  d.rows = 7;
  return d;
}

// Convolution() with one field changed.
template <typename Change>
OpDesc With(const Change& change) {
  OpDesc d = Convolution();
  change(d);
  return d;
}

TEST_CASE("Op check: losses of numbers name a wrong parameter", "[kernels]") {
  OpDesc d = Matrix(OpKind::kOutputLossForward);
  REQUIRE_OK(MakeSignature(d).status());
  d.has_weights = true;
  CHECK_STATUS(MakeSignature(d).status(), absl::StatusCode::kInvalidArgument, "sigmoid alone");
  d.has_weights = false;
  d.loss = OutputLoss::kHuber;
  CHECK_STATUS(MakeSignature(d).status(), absl::StatusCode::kInvalidArgument,
               "loss_parameter is 0, expected a number above 0 (huber)");
  d.loss = OutputLoss::kQuantile;
  d.loss_parameter = 1.0f;
  CHECK_STATUS(MakeSignature(d).status(), absl::StatusCode::kInvalidArgument,
               "loss_parameter is 1, expected one in (0, 1) (quantile)");
  CHECK(IsHostOnly(d));
  CHECK_FALSE(IsHostOnly(Matrix(OpKind::kSoftmaxCrossEntropyForward)));
}

TEST_CASE("Op: ToString names kind, shapes and attributes", "[kernels]") {
  CHECK(ToString(Convolution()) ==
        "convolution_forward n=64 28x28x1 -> 24x24x20 kernel 5 stride 1 padding 0 bias");
  OpDesc fc = Matrix(OpKind::kFullyConnectedForward);
  fc.fuse_relu = true;
  CHECK(ToString(fc) == "fully_connected_forward n=4 10 -> 3 relu");
  OpDesc norm = Matrix(OpKind::kBatchNormForward);
  norm.fuse_relu = norm.has_addend = true;
  CHECK(ToString(norm) == "batch_norm_forward n=4 1x1x10 epsilon 1e-05 addend relu");
  CHECK(ToString(Matrix(OpKind::kEmbeddingForward)) == "embedding_forward n=4 10 of 7 rows x 3");
}

TEST_CASE("Op signature: operands have the counts of op.h", "[kernels]") {
  REQUIRE_OK_AND_ASSIGN(const OpSignature s, MakeSignature(Convolution()));
  REQUIRE(s.input_count == 3);
  REQUIRE(s.output_count == 1);
  CHECK(s.inputs[0].count == 64 * 28 * 28);
  CHECK(s.inputs[1].count == 20 * 25);
  CHECK(s.inputs[2].count == 20);
  CHECK(s.outputs[0].count == 64 * 24 * 24 * 20);

  REQUIRE_OK_AND_ASSIGN(const OpSignature e, MakeSignature(Matrix(OpKind::kEmbeddingForward)));
  CHECK(e.inputs[0].count == 40);
  CHECK(e.inputs[1].count == 21);
  CHECK(e.outputs[0].count == 120);

  for (const OpKind kind : {OpKind::kDropoutForward, OpKind::kDropoutBackward}) {
    REQUIRE_OK_AND_ASSIGN(const OpSignature d, MakeSignature(Matrix(kind)));
    REQUIRE(d.input_count == 2);
    CHECK(d.inputs[1].count == 2);  // The key.
    CHECK(WithTensorType(d, DataType::kFloat16).inputs[1].dtype == DataType::kInt32);
  }

  REQUIRE_OK_AND_ASSIGN(const OpSignature x,
                        MakeSignature(Matrix(OpKind::kSoftmaxCrossEntropyForward)));
  CHECK(x.inputs[1].dtype == DataType::kInt32);
  CHECK(x.outputs[1].count == 4);
}

std::vector<std::string> NamesOf(const OpSignature& s) {
  std::vector<std::string> names;
  for (int i = 0; i < s.input_count; ++i) names.emplace_back(s.inputs[static_cast<size_t>(i)].name);
  names.emplace_back("->");
  for (int i = 0; i < s.output_count; ++i)
    names.emplace_back(s.outputs[static_cast<size_t>(i)].name);
  return names;
}

TEST_CASE("Op signature: batch norm with ReLU and an addend has the operands of op.h",
          "[kernels]") {
  using Names = std::vector<std::string>;
  const auto names = [](OpKind kind, bool relu, bool addend) {
    OpDesc d = Matrix(kind);
    d.h = d.w = 2;
    d.fuse_relu = relu;
    d.has_addend = addend;
    REQUIRE_OK_AND_ASSIGN(const OpSignature s, MakeSignature(d));
    for (int i = 0; i < s.input_count; ++i) {
      const std::string name = s.inputs[static_cast<size_t>(i)].name;
      const bool image = name == "x" || name == "y" || name == "dy" || name == "addend";
      CHECK(s.inputs[static_cast<size_t>(i)].count == (image ? 160 : 10));
    }
    return NamesOf(s);
  };
  using K = OpKind;
  CHECK(names(K::kBatchNormForward, true, false) ==
        Names{"x", "scale", "shift", "->", "y", "mean", "variance"});
  CHECK(names(K::kBatchNormForward, true, true) ==
        Names{"x", "scale", "shift", "addend", "->", "y", "mean", "variance"});
  CHECK(names(K::kBatchNormInference, true, true) ==
        Names{"x", "scale", "shift", "mean", "variance", "addend", "->", "y"});
  CHECK(names(K::kBatchNormBackward, false, false) ==
        Names{"x", "dy", "scale", "mean", "variance", "->", "dx", "dscale", "dshift"});
  CHECK(names(K::kBatchNormBackward, true, false) ==
        Names{"x", "dy", "scale", "mean", "variance", "shift", "->", "dx", "dscale", "dshift"});
  CHECK(names(K::kBatchNormBackward, true, true) ==
        Names{"x", "dy", "scale", "mean", "variance", "y", "->", "dx", "dscale", "dshift", "dsum"});
}

TEST_CASE("Op signature: layer norm has a mean and a variance a position", "[kernels]") {
  using Names = std::vector<std::string>;
  OpDesc d = Matrix(OpKind::kLayerNormForward);
  d.h = d.w = 2;
  REQUIRE_OK_AND_ASSIGN(const OpSignature forward, MakeSignature(d));
  CHECK(NamesOf(forward) == Names{"x", "scale", "shift", "->", "y", "mean", "variance"});
  CHECK(forward.outputs[1].count == 16);
  d.kind = OpKind::kLayerNormBackward;
  REQUIRE_OK_AND_ASSIGN(const OpSignature backward, MakeSignature(d));
  CHECK(NamesOf(backward) ==
        Names{"x", "dy", "scale", "mean", "variance", "->", "dx", "dscale", "dshift"});
  d.epsilon = 0;
  CHECK_STATUS(MakeSignature(d), kInvalid, "epsilon is 0, expected > 0 and finite");
}

TEST_CASE("Op signature: RMS norm has the mean of the squares of a position, and no shift",
          "[kernels]") {
  using Names = std::vector<std::string>;
  OpDesc d = Matrix(OpKind::kRmsNormForward);
  d.h = d.w = 2;
  REQUIRE_OK_AND_ASSIGN(const OpSignature forward, MakeSignature(d));
  CHECK(NamesOf(forward) == Names{"x", "scale", "->", "y", "mean_square"});
  CHECK(forward.outputs[1].count == 16);
  d.kind = OpKind::kRmsNormBackward;
  REQUIRE_OK_AND_ASSIGN(const OpSignature backward, MakeSignature(d));
  CHECK(NamesOf(backward) == Names{"x", "dy", "scale", "mean_square", "->", "dx", "dscale"});
  CHECK(IsHostOnly(d));
  d.epsilon = 0;
  CHECK_STATUS(MakeSignature(d), kInvalid, "epsilon is 0, expected > 0 and finite");
}

TEST_CASE("Op signature: a bad field is named with its value and what was expected", "[kernels]") {
  CHECK_STATUS(MakeSignature(With([](OpDesc& d) { d.n = -1; })), kInvalid,
               "n is -1, expected >= 0");
  CHECK_STATUS(MakeSignature(With([](OpDesc& d) { d.h = 0; })), kInvalid, "h is 0, expected >= 1");
  CHECK_STATUS(MakeSignature(With([](OpDesc& d) { d.c = -3; })), kInvalid, "c is -3");
  CHECK_STATUS(MakeSignature(With([](OpDesc& d) { d.stride = 0; })), kInvalid, "stride is 0");
  CHECK_STATUS(MakeSignature(With([](OpDesc& d) { d.padding = 5; })), kInvalid,
               "padding is 5, expected 0 <= padding < kernel = 5");
  CHECK_STATUS(MakeSignature(With([](OpDesc& d) { d.kernel = 29; })), kInvalid,
               "kernel is 29, expected at most h + 2 * padding = 28");
  CHECK_STATUS(MakeSignature(With([](OpDesc& d) { d.out_w = 23; })), kInvalid,
               "out_w is 23, expected (w + 2 * padding - kernel) / stride + 1 = 24");
  CHECK_STATUS(MakeSignature(With([](OpDesc& d) { d.kind = OpKind::kMaxPoolForward; })), kInvalid,
               "out_c is 20, expected c = 1 of a pool");
  CHECK_STATUS(MakeSignature(With([](OpDesc& d) { d.kind = static_cast<OpKind>(99); })), kInvalid,
               "kind is 99");
  CHECK_STATUS(MakeSignature(With([](OpDesc& d) { d.out_h = 3; })), kInvalid,
               "convolution_forward n=64 28x28x1 -> 3x24x20");
}

TEST_CASE("Op signature: attributes are checked where an op uses them", "[kernels]") {
  OpDesc fc = Matrix(OpKind::kFullyConnectedForward);
  fc.h = 2;
  CHECK_STATUS(MakeSignature(fc), kInvalid, "h is 2, expected 1 for a matrix");
  OpDesc dropout = Matrix(OpKind::kDropoutForward);
  for (const float rate : {-0.1f, 1.0f, std::numeric_limits<float>::quiet_NaN()}) {
    dropout.dropout_rate = rate;
    CHECK_STATUS(MakeSignature(dropout), kInvalid, "expected 0 <= rate < 1");
  }
  OpDesc norm = Matrix(OpKind::kBatchNormForward);
  norm.epsilon = 0.0f;
  CHECK_STATUS(MakeSignature(norm), kInvalid, "epsilon is 0, expected > 0");
  norm.epsilon = 1e-5f;
  norm.has_addend = true;
  CHECK_STATUS(MakeSignature(norm), kInvalid, "has_addend without fuse_relu");
  OpDesc embedding = Matrix(OpKind::kEmbeddingForward);
  for (const int64_t rows : {int64_t{0}, kEmbeddingRowsMax + 1}) {
    embedding.rows = rows;
    CHECK_STATUS(MakeSignature(embedding), kInvalid, "expected >= 1 and <= 2^24");
  }
}

TEST_CASE("Op signature: an activation that no backend has is refused", "[kernels]") {
  OpDesc d = Matrix(OpKind::kActivationForward);
  d.activation = ActivationNamed("gelu");
  CHECK(MakeSignature(d).ok());
  d.activation = ActivationNamed("step");
  CHECK_STATUS(MakeSignature(d), kInvalid, "unknown: activation is ");
}

TEST_CASE("Op signature: products of shapes that overflow are refused", "[kernels]") {
  OpDesc d = Matrix(OpKind::kReluForward);
  d.n = d.h = d.w = d.c = int64_t{1} << 30;
  CHECK_STATUS(MakeSignature(d), kInvalid, "x has more elements than the 2147483647 allowed");
  d.n = 0;  // No element: nothing overflows.
  CHECK(MakeSignature(d).ok());
}

TEST_CASE("Op views: number, counts, types and null pointers are checked", "[kernels]") {
  REQUIRE_OK_AND_ASSIGN(const OpSignature s,
                        MakeSignature(Matrix(OpKind::kSoftmaxCrossEntropyForward)));
  std::vector<float> floats(40);
  std::vector<int32_t> numbers(4);
  const TensorView logits = ViewOf(floats.data(), 40);
  const TensorView labels = ViewOf(numbers.data(), 4);
  const TensorView loss = ViewOf(floats.data(), 4);
  REQUIRE_OK(CheckViews(s, {logits, labels}, {logits, loss}));
  CHECK_STATUS(CheckViews(s, {logits}, {logits, loss}), kInvalid,
               "1 inputs were given, expected 2");
  CHECK_STATUS(CheckViews(s, {logits, labels}, {logits, logits}), kInvalid,
               "output loss has 40 elements, expected 4");
  CHECK_STATUS(CheckViews(s, {logits, loss}, {logits, loss}), kInvalid,
               "input labels is fp32, expected int32");
  const TensorView null = {nullptr, 40, DataType::kFloat32};
  CHECK_STATUS(CheckViews(s, {null, labels}, {logits, loss}), kInvalid,
               "input logits is null, expected 40 elements");
}

TEST_CASE("Op signature: a backend's tensor type is that of tensors alone", "[kernels]") {
  REQUIRE_OK_AND_ASSIGN(const OpSignature plain, MakeSignature(Convolution()));
  const OpSignature s = WithTensorType(plain, DataType::kBfloat16);
  CHECK(s.inputs[0].dtype == DataType::kBfloat16);   // x
  CHECK(s.inputs[1].dtype == DataType::kBfloat16);   // weight
  CHECK(s.inputs[2].dtype == DataType::kFloat32);    // bias
  CHECK(s.outputs[0].dtype == DataType::kBfloat16);  // y
  REQUIRE_OK_AND_ASSIGN(const OpSignature softmax,
                        MakeSignature(Matrix(OpKind::kSoftmaxCrossEntropyForward)));
  const OpSignature loss = WithTensorType(softmax, DataType::kBfloat16);
  CHECK(loss.inputs[0].dtype == DataType::kBfloat16);  // logits
  CHECK(loss.inputs[1].dtype == DataType::kInt32);     // labels
  CHECK(loss.outputs[0].dtype == DataType::kFloat32);  // probabilities
  OpDesc norm = Matrix(OpKind::kBatchNormForward);
  norm.fuse_relu = norm.has_addend = true;
  REQUIRE_OK_AND_ASSIGN(const OpSignature normal, MakeSignature(norm));
  CHECK(WithTensorType(normal, DataType::kBfloat16).inputs[3].dtype == DataType::kBfloat16);
  norm.kind = OpKind::kBatchNormBackward;
  REQUIRE_OK_AND_ASSIGN(const OpSignature back, MakeSignature(norm));
  CHECK(WithTensorType(back, DataType::kBfloat16).inputs[5].dtype == DataType::kBfloat16);  // y
  CHECK(WithTensorType(back, DataType::kBfloat16).outputs[1].dtype ==
        DataType::kFloat32);  // dscale
  CHECK(WithTensorType(back, DataType::kBfloat16).outputs[3].dtype == DataType::kBfloat16);  // dsum
  std::vector<float> floats(64 * 28 * 28);
  const TensorView x = ViewOf(floats.data(), 64 * 28 * 28);
  CHECK_STATUS(CheckViews(s, {x, x, x}, {x}), kInvalid, "input x is fp32, expected bf16");
}

TEST_CASE("Op data: labels and row numbers out of range are named", "[kernels]") {
  const std::vector<int32_t> labels = {0, 9, 10, -1};
  CHECK_STATUS(CheckLabels(labels, 10), kInvalid, "label 2 is 10, expected 0 <= label < 10");
  CHECK_STATUS(CheckLabels(labels, 11), kInvalid, "label 3 is -1");
  REQUIRE_OK(CheckLabels({}, 1));
  CHECK_STATUS(CheckRows(std::vector<float>{6.0f, 7.0f}, 7), kInvalid, "row number 1 is 7");
  CHECK_STATUS(CheckRows(std::vector<float>{0.5f}, 7), kInvalid, "expected a whole number");
  CHECK_STATUS(CheckRows(std::vector<float>{-1.0f}, 7), kInvalid, "row number 0 is -1");
  CHECK_STATUS(CheckRows(std::vector<float>{std::numeric_limits<float>::quiet_NaN()}, 7), kInvalid,
               "row number 0 is nan");
}

}  // namespace
}  // namespace capstan::kernels::op_check_test
