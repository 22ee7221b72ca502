// Tests of networks with every loss: gradients by finite differences, weights, slots, output sums.
#include <google/protobuf/text_format.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/model/initial_values.h"
#include "common/model/plan_model.h"
#include "common/model/tables.h"
#include "common/random/philox.h"
#include "common/testing/status_matchers.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/reference/reference_backend.h"
#include "kernels/testing/fake_device.h"
#include "proto/job.pb.h"
#include "worker/training/network.h"

namespace capstan::worker::losses_test {
namespace {

constexpr int64_t kOutputs = 3;
constexpr SampleShape kInput = {1, 1, 4};

ModelPlan PlanOf(const std::string& loss, std::vector<float> weights = {}) {
  v1::Model model;
  REQUIRE(google::protobuf::TextFormat::ParseFromString(
      R"(layers { name: "a" fully_connected { units: 5 } } layers { name: "r" relu {} }
         layers { name: "b" fully_connected { units: 3 } } loss { )" +
          loss + " }",
      &model));
  REQUIRE_OK_AND_ASSIGN(ModelPlan plan, PlanModel(model, kInput, kOutputs));
  plan.loss.weights = std::move(weights);
  return plan;
}

struct Samples {
  std::vector<float> images, targets;
  std::vector<int32_t> labels;
  BatchView view() const { return {images, labels, 0, targets}; }
  Samples Part(size_t begin, size_t end) const {
    const auto cut = [=](const auto& all, size_t each) {
      const auto first = all.begin();
      return std::decay_t<decltype(all)>(first + static_cast<ptrdiff_t>(begin * each),
                                         first + static_cast<ptrdiff_t>(end * each));
    };
    return {cut(images, 4), targets.empty() ? targets : cut(targets, 3), cut(labels, 1)};
  }
};

Samples Draw(const ModelPlan& plan, size_t n) {
  Samples samples;
  for (size_t i = 0; i < 4 * n; ++i) {
    samples.images.push_back(2 * ToUnitFloat(PhiloxWord(5, i)) - 1);
  }
  const bool flags = plan.loss.kind == PlannedLoss::Kind::kSigmoid;
  for (size_t i = 0; i < n; ++i) {
    samples.labels.push_back(
        plan.loss.of_classes() ? static_cast<int32_t>(PhiloxWord(6, i) % kOutputs) : 0);
  }
  if (plan.loss.of_classes()) return samples;
  for (size_t i = 0; i < kOutputs * n; ++i) {
    const float target = 4 * ToUnitFloat(PhiloxWord(7, i)) - 2;
    samples.targets.push_back(flags ? (target > 0 ? 1.0f : 0.0f) : target);
  }
  return samples;
}

struct Fixture {
  explicit Fixture(const ModelPlan& the_plan, bool cpu = true)
      : plan(the_plan), backend(cpu ? kernels::MakeCpuBackend() : kernels::MakeReferenceBackend()) {
    auto created = Network::Create(plan, *backend, 64);
    REQUIRE_OK(created);
    network = *std::move(created);
    parameters.resize(static_cast<size_t>(plan.parameter_count));
    FillInitialValues(MakeTables(plan)[0], 3, 0, absl::MakeSpan(parameters));
  }
  std::vector<float> Train(const Samples& samples, float scale, double* loss = nullptr) {
    std::vector<float> gradient(parameters.size(), NAN);
    auto result = network->Train(samples.view(), parameters, scale, 0, absl::MakeSpan(gradient),
                                 absl::Span<float>());
    REQUIRE_OK(result);
    if (loss != nullptr) *loss = result->loss_sum;
    return gradient;
  }

  ModelPlan plan;
  std::unique_ptr<kernels::Backend> backend;
  std::unique_ptr<Network> network;
  std::vector<float> parameters;
};

std::vector<ModelPlan> AllPlans() {
  return {PlanOf("squared {}"),
          PlanOf("huber { delta: 0.7 }"),
          PlanOf("quantile { q: 0.8 }"),
          PlanOf("sigmoid_cross_entropy {}"),
          PlanOf("sigmoid_cross_entropy {}", {1, 4, 0.5f}),
          PlanOf("softmax_cross_entropy {}", {2, 0, 0.5f})};
}

// Kinks, of ReLU and of the losses, make a few slopes differ between two steps: those are left out.
TEST_CASE("Losses: gradients are the slopes of the loss", "[worker][training]") {
  for (const ModelPlan& plan : AllPlans()) {
    CAPTURE(static_cast<int>(plan.loss.kind));
    Fixture fixture(plan, /*cpu=*/false);
    const Samples samples = Draw(plan, 6);
    const std::vector<float> gradient = fixture.Train(samples, 0.25f);
    int checked = 0, left_out = 0;
    for (size_t e = 0; e < gradient.size(); ++e) {
      const float value = fixture.parameters[e];
      const auto slope = [&](float step) {
        double above = 0, below = 0;
        fixture.parameters[e] = value + step;
        fixture.Train(samples, 1, &above);
        fixture.parameters[e] = value - step;
        fixture.Train(samples, 1, &below);
        fixture.parameters[e] = value;
        return (above - below) / (double{value + step} - double{value - step});
      };
      const double near = slope(2e-3f);
      if (std::fabs(near - slope(4e-3f)) > 1.5e-3 + 0.005 * std::fabs(near)) {
        ++left_out;
        continue;
      }
      CHECK(gradient[e] / 0.25f == Approx(near).epsilon(0.01).margin(5e-3));
      ++checked;
    }
    CHECK(left_out * 3 < checked);
  }
}

TEST_CASE("Losses: a batch's gradient is the sum of its slots', also with weights",
          "[worker][training]") {
  for (const ModelPlan& plan : AllPlans()) {
    CAPTURE(static_cast<int>(plan.loss.kind));
    Fixture fixture(plan);
    const Samples all = Draw(plan, 13);
    double whole = 0, first = 0, rest = 0;
    const std::vector<float> gradient = fixture.Train(all, 1.0f / 13, &whole);
    const std::vector<float> a = fixture.Train(all.Part(0, 5), 1.0f / 13, &first);
    const std::vector<float> b = fixture.Train(all.Part(5, 13), 1.0f / 13, &rest);
    CHECK(whole == Approx(first + rest));
    for (size_t e = 0; e < gradient.size(); ++e) {
      CHECK(a[e] + b[e] == Approx(gradient[e]).margin(1e-6));
    }
  }
}

TEST_CASE("Losses: weights are for training alone", "[worker][training]") {
  for (const char* const loss : {"softmax_cross_entropy {}", "sigmoid_cross_entropy {}"}) {
    Fixture plain(PlanOf(loss)), weighted(PlanOf(loss, {3, 3, 3}));
    const Samples samples = Draw(plain.plan, 20);
    double loss_plain = 0, loss_weighted = 0;
    plain.Train(samples, 1, &loss_plain);
    weighted.Train(samples, 1, &loss_weighted);
    CHECK(loss_weighted > loss_plain);
    REQUIRE_OK_AND_ASSIGN(const BatchResult a,
                          plain.network->Evaluate(samples.view(), plain.parameters, {}));
    REQUIRE_OK_AND_ASSIGN(const BatchResult b,
                          weighted.network->Evaluate(samples.view(), plain.parameters, {}));
    CHECK(a.loss_sum == b.loss_sum);
    CHECK(a.loss_sum == Approx(loss_plain));
  }
}

TEST_CASE("Losses: an evaluation sums its outputs", "[worker][training]") {
  Fixture numbers(PlanOf("huber { delta: 100 }"));
  const Samples samples = Draw(numbers.plan, 20);
  REQUIRE_OK_AND_ASSIGN(const BatchResult result,
                        numbers.network->Evaluate(samples.view(), numbers.parameters, {}));
  CHECK(result.correct == 0);
  CHECK(result.outputs.values == 60);
  // The loss is half the square, averaged over a sample's three outputs.
  CHECK(result.outputs.squared_errors / 6 == Approx(result.loss_sum));
  CHECK(result.scores.empty());
  Fixture labels(PlanOf("sigmoid_cross_entropy {}"));
  const Samples flags = Draw(labels.plan, 20);
  REQUIRE_OK_AND_ASSIGN(const BatchResult flagged,
                        labels.network->Evaluate(flags.view(), labels.parameters, {}));
  CHECK(flagged.scores.Examples() == 60);
  CHECK(flagged.outputs.positives > 0);
}

TEST_CASE("Losses: what does not fit, and what devices do not compute, is refused",
          "[worker][training]") {
  Fixture fixture(PlanOf("squared {}"));
  Samples samples = Draw(fixture.plan, 4);
  samples.targets.pop_back();
  CHECK_STATUS(fixture.network->Evaluate(samples.view(), fixture.parameters, {}).status(),
               absl::StatusCode::kInvalidArgument, "targets has 11 elements, expected 12");
  kernels::FakeDevice device(kernels::MakeCpuBackend(), {});
  for (const ModelPlan& plan : AllPlans()) {
    CHECK_STATUS(Network::Create(plan, device, 4).status(), absl::StatusCode::kUnimplemented,
                 "computed by CPUs only");
  }
}

}  // namespace
}  // namespace capstan::worker::losses_test
