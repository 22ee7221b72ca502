#include "common/sparse_models/mlp.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <vector>

namespace capstan::mlp_test {
namespace {

using Floats = std::vector<float>;

TEST_CASE("MLP: tensors lie end to end behind those of the model", "[sparse_models]") {
  SparseShape shape;
  shape.dense_count = 7;
  const Mlp mlp("top", {4, 3, 2}, Mlp::Output::kLinear, &shape);
  CHECK_FALSE(mlp.empty());
  CHECK(Mlp().empty());
  REQUIRE(shape.dense.size() == 4);
  CHECK(shape.dense[0].name == "top.0.weight");
  CHECK(shape.dense[0].shape == std::vector<int64_t>{3, 4});
  CHECK(shape.dense[0].initial.kind == Initial::Kind::kUniform);
  CHECK(shape.dense[0].initial.value == 0.5f);
  CHECK(shape.dense[3].name == "top.1.bias");
  int64_t end = 7;
  for (const PlannedTensor& tensor : shape.dense) {
    CHECK(tensor.offset == end);
    end += tensor.count;
  }
  CHECK(end == shape.dense_count);
  CHECK(end == 7 + 4 * 3 + 3 + 3 * 2 + 2);
}

// y = W relu(V x + v) + w on two rows; the second unit of the hidden layer is off in the first row.
TEST_CASE("MLP: forward and backward by hand", "[sparse_models]") {
  SparseShape shape;
  Mlp mlp("mlp", {1, 2, 1}, Mlp::Output::kLinear, &shape);
  const Floats dense = {2, -3, 1, 1, 5, 7, 0.5f};  // V, v, W, w.
  const Floats in = {1, -1};
  const float* out = mlp.Forward(2, in.data(), dense.data());
  CHECK(Floats(out, out + 2) == Floats{5 * 3 + 0.5f, 7 * 4 + 0.5f});

  const Floats out_gradient = {1, 10};
  Floats in_gradient = {42, 42};
  Floats gradients(7, 100);  // Is added to.
  mlp.Backward(2, in.data(), dense.data(), out_gradient.data(), in_gradient.data(),
               gradients.data());
  CHECK(in_gradient == Floats{5 * 2, 10 * 7 * -3});
  CHECK(gradients == Floats{100 + 5, 100 - 70, 100 + 5, 100 + 70, 100 + 3, 100 + 40, 100 + 11});

  Floats again(7, 100);
  mlp.Backward(2, in.data(), dense.data(), out_gradient.data(), nullptr, again.data());
  CHECK(again == gradients);
}

TEST_CASE("MLP: ReLU stands behind the last layer where it is asked for", "[sparse_models]") {
  for (const Mlp::Output output : {Mlp::Output::kLinear, Mlp::Output::kRelu}) {
    SparseShape shape;
    Mlp mlp("mlp", {1, 1}, output, &shape);
    const Floats dense = {1, 0}, in = {-2, 3}, out_gradient = {1, 1};
    const float* out = mlp.Forward(2, in.data(), dense.data());
    const bool relu = output == Mlp::Output::kRelu;
    CHECK(Floats(out, out + 2) == Floats{relu ? 0.0f : -2.0f, 3});
    Floats gradients(2);
    mlp.Backward(2, in.data(), dense.data(), out_gradient.data(), nullptr, gradients.data());
    CHECK(gradients == (relu ? Floats{3, 1} : Floats{1, 2}));
  }
}

TEST_CASE("MLP: NaN passes ReLU", "[sparse_models]") {
  SparseShape shape;
  Mlp mlp("mlp", {1, 1}, Mlp::Output::kRelu, &shape);
  const Floats dense = {1, 0}, in = {std::numeric_limits<float>::quiet_NaN()};
  CHECK(std::isnan(*mlp.Forward(1, in.data(), dense.data())));
}

}  // namespace
}  // namespace capstan::mlp_test
