// Tests the reference's backward ops against finite differences of its forward ops, and checks a
// few results that are known without computing.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "common/random/philox.h"
#include "common/testing/status_matchers.h"
#include "kernels/activation.h"
#include "kernels/op_check.h"
#include "kernels/reference/reference_backend.h"
#include "kernels/testing/gradient_checks.h"
#include "kernels/testing/op_cases.h"

namespace capstan::kernels::gradient_test {
namespace {

using K = OpKind;
using Floats = std::vector<float>;

Operands RunReference(const OpDesc& desc, Operands& inputs, const RunOptions& options) {
  const auto backend = MakeReferenceBackend();
  REQUIRE_OK_AND_ASSIGN(const OpSignature signature, MakeSignature(desc));
  REQUIRE_OK_AND_ASSIGN(const auto plan, backend->Prepare(desc));
  Operands outputs = MakeOutputs(signature);
  REQUIRE_OK(backend->Run(*plan, inputs.Views(), outputs.Views(), options));
  return outputs;
}

TEST_CASE("Reference gradients: as finite differences have them", "[kernels][reference]") {
  for (const GradientCheck& one : GradientChecks()) {
    INFO(one.name);
    one.check(&RunReference, kGradientTolerance);
  }
}

TEST_CASE("Reference: known small results", "[kernels][reference]") {
  // A 2x2 mean with one row of padding leaves the padding out: the first window holds two values.
  const OpDesc average = WindowDesc(K::kAveragePoolForward, {1, 2, 2, 1, 1, 2, 1, 1}, false, false);
  Operands pixels;
  pixels.Add({1.0f, 3.0f, 5.0f, 7.0f}, DataType::kFloat32);
  CHECK(RunReference(average, pixels, {}).values[0] ==
        Floats{1.0f, 2.0f, 3.0f, 3.0f, 4.0f, 5.0f, 5.0f, 6.0f, 7.0f});
  // 1, 2, 3 and 4 have mean 2.5 and variance 1.25.
  Operands row;
  row.Add({1.0f, 2.0f, 3.0f, 4.0f}, DataType::kFloat32);
  row.Add({2.0f, 2.0f, 2.0f, 2.0f}, DataType::kFloat32);
  row.Add({0.5f, 0.5f, 0.5f, 0.5f}, DataType::kFloat32);
  const Operands normal = RunReference(MatrixDesc(K::kLayerNormForward, 1, 4, 1), row, {});
  CHECK(normal.values[0][0] == Approx(0.5 - 3 / std::sqrt(1.25)).epsilon(1e-4));
  CHECK(normal.values[1][0] == 2.5f);
  CHECK(normal.values[2][0] == 1.25f);
  // Their squares have the mean 7.5.
  row.values.pop_back();
  row.types.pop_back();
  const Operands rms = RunReference(MatrixDesc(K::kRmsNormForward, 1, 4, 1), row, {});
  CHECK(rms.values[0][3] == Approx(2 * 4 / std::sqrt(7.5)).epsilon(1e-4));
  CHECK(rms.values[1][0] == 7.5f);
  // Two equal logits: probability 1/2 each, loss log 2.
  Operands logits;
  logits.Add({3.0f, 3.0f}, DataType::kFloat32);
  logits.Add({0.0f}, DataType::kInt32);  // Label 0.
  const Operands out =
      RunReference(MatrixDesc(K::kSoftmaxCrossEntropyForward, 1, 2, 1), logits, {});
  CHECK(out.values[0] == Floats{0.5f, 0.5f});
  CHECK(out.values[1][0] == Approx(std::log(2.0)));
}

TEST_CASE("Reference: dropout keeps about 1 - rate of the elements, chosen by the key",
          "[kernels][reference]") {
  OpDesc d = MatrixDesc(K::kDropoutForward, 100, 100, 1);
  d.dropout_rate = 0.25f;
  Floats x(10000, 3.0f), y(10000);
  const uint64_t key = 0x9876543289abcdef;  // Both words have their highest bit.
  auto words = WordsOfKey(key);
  const auto backend = MakeReferenceBackend();
  REQUIRE_OK_AND_ASSIGN(const auto plan, backend->Prepare(d));
  REQUIRE_OK(backend->Run(*plan, {ViewOf(x.data(), 10000), ViewOf(words.data(), kKeyWords)},
                          {ViewOf(y.data(), 10000)}));
  // 7500 are expected with a standard deviation of 43; this is 5 of them.
  CHECK(std::abs(std::count(y.begin(), y.end(), 4.0f) - 7500) < 217);
  CHECK(std::count(y.begin(), y.end(), 0.0f) + std::count(y.begin(), y.end(), 4.0f) == 10000);
  for (size_t i = 0; i < y.size(); ++i) {
    CHECK((y[i] != 0.0f) == (PhiloxWord(key, i) >= uint32_t{1} << 30));
  }
}

TEST_CASE("Reference activations: each has the values that PyTorch computes", "[kernels]") {
  const std::map<std::string, Floats> expected = {
      {"gelu", {-0.0455002636f, -0.154268771f, 0.0f, 0.841344774f, 2.99595022f}},
      {"silu", {-0.238405839f, -0.188770339f, 0.0f, 0.731058598f, 2.85772252f}},
      {"tanh", {-0.964027584f, -0.462117165f, 0.0f, 0.761594176f, 0.995054781f}},
      {"sigmoid", {0.119202919f, 0.377540678f, 0.5f, 0.731058598f, 0.952574134f}},
  };
  Operands x;
  x.Add({-2.0f, -0.5f, 0.0f, 1.0f, 3.0f}, DataType::kFloat32);
  OpDesc desc = MatrixDesc(K::kActivationForward, 1, 5, 1);
  for (const char* const name : kActivationNames) {
    INFO(name);
    desc.activation = ActivationNamed(name);
    const Floats y = RunReference(desc, x, {}).values[0];
    for (size_t i = 0; i < y.size(); ++i) CHECK(y[i] == Approx(expected.at(name)[i]));
  }
}

}  // namespace
}  // namespace capstan::kernels::gradient_test
