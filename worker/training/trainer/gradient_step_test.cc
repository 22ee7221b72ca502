#include "worker/training/trainer/gradient_step.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

#include "common/random/philox.h"
#include "common/testing/status_matchers.h"
#include "common/wire/number_format.h"

namespace capstan::worker::gradient_step_test {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// A network that returns a fixed gradient times the scale, and records how it was called.
class FakeNetwork final : public Network {
 public:
  absl::Status Forward(const BatchView& batch, ParameterView, uint64_t dropout_key,
                       const ParametersNeeded&) override {
    ++calls;
    key = dropout_key;
    samples = batch.n();
    return absl::OkStatus();
  }
  absl::StatusOr<BatchResult> Backward(float gradient_scale, GradientView out,
                                       absl::Span<float> statistics_out, const GradientReady& ready,
                                       const std::function<void()>&) override {
    scales.push_back(gradient_scale);
    std::vector<float> scaled;
    for (const float value : gradient) {
      scaled.push_back(value * gradient_scale);
      if (std::abs(scaled.back()) > largest) scaled.back() = kInfinity;
    }
    const bool halves = exchanged.gradients != NumberFormat::kFp32;
    void* const to = halves ? static_cast<void*>(out.halves.data()) : out.floats.data();
    EncodeNumbers(exchanged.gradients, scaled, static_cast<char*>(to));
    BatchResult result{loss_sum, samples};
    const auto finite = [&](size_t first) {
      return std::all_of(scaled.begin() + static_cast<int64_t>(first), scaled.end(),
                         [](float value) { return std::isfinite(value); });
    };
    result.gradient_finite = (ready == nullptr && !halves) || finite(0);
    for (const size_t first : {8, 4}) {
      if (ready != nullptr && finite(first)) ready(static_cast<int64_t>(first));
    }
    for (size_t i = 0; i < statistics.size(); ++i) statistics_out[i] = statistics[i];
    return result;
  }
  ExchangeFormats exchanges() const override { return exchanged; }
  absl::Status Repeat() override {
    ++repeats;
    return absl::OkStatus();
  }
  absl::StatusOr<BatchResult> Evaluate(const BatchView&, absl::Span<const float>,
                                       absl::Span<const float>, Parameters) override {
    return absl::UnimplementedError("not used");
  }
  void AppendLogits(std::vector<float>*) const override {}
  absl::StatusOr<BatchResult> TrainInPlace(const BatchView&, absl::Span<const float>, uint64_t,
                                           float, absl::Span<float>, const UpdateInPlace&,
                                           const std::function<void()>&) override {
    return absl::UnimplementedError("not used");
  }
  absl::Status Stage(const BatchView&) override { return absl::UnimplementedError("not used"); }

  std::vector<float> gradient = std::vector<float>(10, 2.0f), statistics = {8, 4};
  ExchangeFormats exchanged;
  double loss_sum = 3;
  int calls = 0;
  int64_t samples = 0;
  float largest = kInfinity;  // Larger values become infinite.
  int repeats = 0;
  std::vector<float> scales;
  uint64_t key = 0;
};

ModelPlan MakePlan() {
  ModelPlan plan;
  plan.parameters = {{"conv.a.weight", {2, 4}, 0, 8, {}, 0}, {"conv.a.bias", {2}, 8, 2, {}, 0}};
  plan.statistics = {{"norm.running_mean", {1}, 0, 1, {}, 0.1f},
                     {"norm.running_variance", {1}, 1, 1, {}, 0.1f}};
  plan.parameter_count = 10;
  plan.statistic_count = 2;
  return plan;
}

struct Fixture {
  absl::StatusOr<BatchResult> Compute(Range positions, int64_t gradient_samples,
                                      double clip_norm = 0, const GradientReady& ready = nullptr) {
    const std::vector<int32_t> labels(static_cast<size_t>(positions.size()));
    GradientStep step(plan, network, {.seed = 7, .clip_norm = clip_norm, .loss_scale = loss_scale});
    const absl::Status begun =
        step.Forward({Epoch(5), positions, gradient_samples}, {{}, labels}, parameters);
    if (!begun.ok()) return begun;
    return step.Backward(absl::MakeSpan(gradient), absl::MakeSpan(statistics), ready);
  }
  double Norm() const {
    double squares = 0;
    for (const float g : gradient) squares += static_cast<double>(g) * g;
    return std::sqrt(squares);
  }

  ModelPlan plan = MakePlan();
  FakeNetwork network;
  std::optional<LossScale::Options> loss_scale;
  std::vector<float> parameters = std::vector<float>(10), gradient = std::vector<float>(10, kNan),
                     statistics = std::vector<float>(2, kNan);
};

TEST_CASE("Gradient step: the gradient is divided by the update's samples, statistics by share",
          "[worker][training]") {
  Fixture f;
  REQUIRE_OK_AND_ASSIGN(const BatchResult result, f.Compute({100, 104}, 16));
  CHECK(result.loss_sum == 3);
  CHECK(result.correct == 4);
  CHECK(f.gradient == std::vector<float>(10, 0.125f));
  CHECK(f.statistics == std::vector<float>{2, 1});
  REQUIRE_OK(f.Compute({100, 104}, 4));
  CHECK(f.gradient == std::vector<float>(10, 0.5f));
  CHECK(f.statistics == std::vector<float>{8, 4});
}

TEST_CASE("Gradient step: dropout draws from seed, epoch and first position",
          "[worker][training]") {
  Fixture f;
  REQUIRE_OK(f.Compute({100, 104}, 16));
  CHECK(f.network.key == MixKey(MixKey(MixKey(7, 3), 5), 100));
}

TEST_CASE("Gradient step: an empty slot contributes zeros without any computation",
          "[worker][training]") {
  Fixture f;
  REQUIRE_OK_AND_ASSIGN(const BatchResult result, f.Compute({100, 100}, 16));
  CHECK(result.correct == 0);
  CHECK(f.network.calls == 0);
  CHECK(f.gradient == std::vector<float>(10, 0.0f));
  CHECK(f.statistics == std::vector<float>(2, 0.0f));
}

TEST_CASE("Gradient step: clip_norm bounds the micro-batch's own mean gradient",
          "[worker][training]") {
  Fixture f;  // The sum's norm is 2 sqrt(10); the mean over 4 samples has norm 1.58.
  REQUIRE_OK(f.Compute({0, 4}, 4, 1.0));
  CHECK(f.Norm() == Approx(1.0));
  REQUIRE_OK(f.Compute({0, 4}, 16, 1.0));  // A quarter of the update has a quarter of the norm.
  CHECK(f.Norm() == Approx(0.25));
  CHECK(f.statistics == std::vector<float>{2, 1});  // Statistics are never clipped.
  REQUIRE_OK(f.Compute({0, 4}, 4, 1.59));
  CHECK(f.gradient == std::vector<float>(10, 0.5f));
  f.network.gradient.assign(10, 1e38f);  // Its squares overflow fp32.
  REQUIRE_OK(f.Compute({0, 4}, 4, 2.0));
  CHECK(f.Norm() == Approx(2.0));
}

TEST_CASE("Gradient step: finite parts are told before the end, unless the whole is to be clipped",
          "[worker][training]") {
  Fixture f;
  std::vector<int64_t> told;
  const GradientReady ready = [&told](int64_t first) { told.push_back(first); };
  REQUIRE_OK(f.Compute({0, 4}, 4, 0, ready));
  CHECK(told == std::vector<int64_t>{8, 4});
  told.clear();
  REQUIRE_OK(f.Compute({0, 4}, 4, 1.0, ready));
  CHECK(told.empty());
  f.network.gradient[6] = kNan;
  CHECK_STATUS(f.Compute({0, 4}, 4, 0, ready), absl::StatusCode::kOutOfRange, "at element 6");
  CHECK(told == std::vector<int64_t>{8});
}

TEST_CASE("Gradient step: a scaled loss gives the same gradient, all of it at the end",
          "[worker][training]") {
  Fixture f;
  REQUIRE_OK(f.Compute({0, 4}, 16, 0.5));
  const std::vector<float> plain = f.gradient;
  f.loss_scale = LossScale::Options{.initial = 1024};
  int told = 0;
  REQUIRE_OK(f.Compute({0, 4}, 16, 0.5, [&told](int64_t) { ++told; }));
  CHECK(f.network.scales == std::vector<float>{0.0625f, 64});
  CHECK(f.gradient == plain);
  CHECK(f.statistics == std::vector<float>{2, 1});
  REQUIRE_OK(f.Compute({0, 4}, 16, 0, [&told](int64_t) { ++told; }));
  CHECK(f.gradient == std::vector<float>(10, 0.125f));
  CHECK(told == 0);
  CHECK(f.network.repeats == 0);
}

TEST_CASE("Gradient step: a batch that overflows is computed again with smaller scales",
          "[worker][training]") {
  Fixture f;
  f.loss_scale = LossScale::Options{.initial = 1024};
  f.network.largest = 300;
  REQUIRE_OK_AND_ASSIGN(const BatchResult result, f.Compute({0, 4}, 4));
  CHECK(result.correct == 4);
  CHECK(f.network.scales == std::vector<float>{256, 128});
  CHECK(f.network.repeats == 1);
  CHECK(f.gradient == std::vector<float>(10, 0.5f));
  SECTION("down to the least, which is divergence") {
    f.network.gradient[9] = 301 * 4;
    CHECK_STATUS(f.Compute({0, 4}, 4), absl::StatusCode::kOutOfRange,
                 "diverged: layer \"conv.a\": the gradient of bias [2] has inf at element 1");
    CHECK(f.network.scales.back() == 0.25f);
    CHECK(f.network.repeats == 1 + 10);
  }
  SECTION("but not where the loss is not finite") {
    f.network.loss_sum = kInfinity;
    f.network.gradient[9] = kNan;
    CHECK_STATUS(f.Compute({0, 4}, 4), absl::StatusCode::kOutOfRange, "has inf at element 0");
    CHECK(f.network.repeats == 1);
  }
}

TEST_CASE("Gradient step: what is not finite is reported with layer, tensor and element",
          "[worker][training]") {
  Fixture f;
  const auto code = absl::StatusCode::kOutOfRange;
  SECTION("NaN in a weight's gradient") {
    f.network.gradient[5] = kNan;
    CHECK_STATUS(f.Compute({0, 4}, 4), code,
                 "diverged: layer \"conv.a\": the gradient of weight [2,4] has nan at element 5");
  }
  SECTION("infinity in the last element, and clipping does not hide it") {
    f.network.gradient[9] = -kInfinity;
    CHECK_STATUS(f.Compute({0, 4}, 4, 1.0), code,
                 "layer \"conv.a\": the gradient of bias [2] has -inf at element 1");
  }
  SECTION("the first of several is named") {
    f.network.gradient.assign(10, kNan);
    CHECK_STATUS(f.Compute({0, 4}, 4), code, "weight [2,4] has nan at element 0");
  }
  SECTION("statistics") {
    f.network.statistics[1] = kInfinity;
    CHECK_STATUS(f.Compute({0, 4}, 4), code,
                 "layer \"norm\": the batch's running_variance [1] has inf at element 0");
  }
  SECTION("loss") {
    f.network.loss_sum = kInfinity;
    CHECK_STATUS(f.Compute({0, 4}, 4), code, "the loss of a batch of 4 is inf");
  }
}

TEST_CASE("Gradient step: a gradient of halves is checked as it came, and stays as it came",
          "[worker][training]") {
  Fixture f;
  f.network.exchanged.gradients = NumberFormat::kBf16;
  std::vector<uint16_t> halves(10);
  const std::vector<int32_t> labels(4);
  GradientStep step(f.plan, f.network, {});
  const auto compute = [&]() -> absl::Status {
    REQUIRE_OK(step.Forward({Epoch(5), {0, 4}, 4}, {{}, labels}, f.parameters));
    return step
        .Backward(GradientView(absl::MakeSpan(halves)), absl::MakeSpan(f.statistics), nullptr)
        .status();
  };
  REQUIRE_OK(compute());
  CHECK(halves == std::vector<uint16_t>(10, 0x3f00));  // 0.5
  f.network.gradient[9] = kInfinity;
  CHECK_STATUS(compute(), absl::StatusCode::kOutOfRange,
               "layer \"conv.a\": the gradient of bias [2] has inf at element 1");
  REQUIRE_OK(step.Forward({Epoch(5), {4, 4}, 4}, {}, f.parameters));  // It is beyond the data.
  REQUIRE_OK(step.Backward(GradientView(absl::MakeSpan(halves)), absl::MakeSpan(f.statistics)));
  CHECK(halves == std::vector<uint16_t>(10, 0));
}

TEST_CASE("Gradient step: sizes that do not fit are refused", "[worker][training]") {
  Fixture f;
  const auto code = absl::StatusCode::kInvalidArgument;
  CHECK_STATUS(f.Compute({0, 4}, 3), code, "positions [0, 4) of an update of 3 samples");
  CHECK_STATUS(f.Compute({0, 0}, 0), code, "an update of 0 samples");
  GradientStep step(f.plan, f.network, {});
  CHECK_STATUS(step.Forward({Epoch(0), {0, 2}, 2}, {}, f.parameters), code,
               "a batch of 0 samples for positions [0, 2)");
}

}  // namespace
}  // namespace capstan::worker::gradient_step_test
