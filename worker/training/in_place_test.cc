// Tests of Network::TrainInPlace: compares a device that keeps its parameters with one that does
// not.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "absl/types/span.h"
#include "common/model/initial_values.h"
#include "common/model/tables.h"
#include "common/testing/status_matchers.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cuda/device_ops.h"
#include "kernels/cuda/element_rules.h"
#include "kernels/testing/fake_device.h"
#include "worker/training/network.h"
#include "worker/training/testing/small_nets.h"

namespace capstan::worker::in_place_test {
namespace {

using kernels::FakeDevice;
using Rule = kernels::cuda::UpdateRule;

constexpr int64_t kBatch = 16;
constexpr uint64_t kSteps = 5;
constexpr float kScale = 0.125f;
constexpr kernels::cuda::UpdateScalars kMomentum = {
    .lr = 0.05f, .clip = std::numeric_limits<float>::infinity(), .momentum = 0.9f};

// The results of each step.
struct Outcome {
  std::vector<double> losses;
  std::vector<std::vector<float>> moments, parameters;
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

std::vector<float> InitialParameters(const ModelPlan& plan) {
  std::vector<float> parameters(static_cast<size_t>(plan.parameter_count));
  FillInitialValues(MakeTables(plan)[0], 3, 0, absl::MakeSpan(parameters));
  return parameters;
}

Outcome ByExchange(const ModelPlan& plan, FakeDevice& device) {
  REQUIRE_OK_AND_ASSIGN(const auto network, Network::Create(plan, device, kBatch));
  std::vector<float> parameters = InitialParameters(plan);
  std::vector<float> gradient(parameters.size()), velocity(parameters.size());
  std::vector<float> moments(static_cast<size_t>(plan.statistic_count));
  Outcome outcome;
  for (uint64_t step = 0; step < kSteps; ++step) {
    const Batch batch = RandomBatch(plan, kBatch, step);
    REQUIRE_OK_AND_ASSIGN(const BatchResult result,
                          network->Train(batch.view(), parameters, kScale, step,
                                         absl::MakeSpan(gradient), absl::MakeSpan(moments)));
    for (size_t i = 0; i < parameters.size(); ++i) {
      parameters[i] = kernels::cuda::Updated<Rule::kMomentum>(kMomentum, parameters[i], gradient[i],
                                                              &velocity[i], nullptr);
    }
    outcome.losses.push_back(result.loss_sum);
    outcome.moments.push_back(moments);
    outcome.parameters.push_back(parameters);
  }
  return outcome;
}

// Runs the steps in place, with an evaluation between two of them.
Outcome InPlace(const ModelPlan& plan, FakeDevice& device) {
  REQUIRE_OK_AND_ASSIGN(const auto network, Network::Create(plan, device, kBatch));
  const int64_t bytes = plan.parameter_count * 4;
  REQUIRE_OK_AND_ASSIGN(void* const velocity, device.TryAllocate(bytes));
  REQUIRE_OK(device.Zero(velocity, bytes));
  const float* there = nullptr;
  const auto update = [&](float* weights, const float* gradient) {
    there = weights;
    return device.Update({.rule = Rule::kMomentum,
                          .scalars = kMomentum,
                          .n = plan.parameter_count,
                          .weights = weights,
                          .gradient = gradient,
                          .s0 = static_cast<float*>(velocity)});
  };
  std::vector<float> parameters = InitialParameters(plan), seen(parameters.size());
  std::vector<float> moments(static_cast<size_t>(plan.statistic_count));
  Outcome outcome;
  std::vector<int64_t> copied, launches, plain_runs;
  for (uint64_t step = 0; step < kSteps; ++step) {
    const Batch batch = RandomBatch(plan, kBatch, step);
    const FakeDevice::Counts before = device.counts();
    REQUIRE_OK_AND_ASSIGN(const BatchResult result,
                          network->TrainInPlace(batch.view(), parameters, step, kScale,
                                                absl::MakeSpan(moments), update));
    copied.push_back(device.counts().copied_bytes - before.copied_bytes);
    launches.push_back(device.counts().launches - before.launches);
    plain_runs.push_back(device.counts().plain_runs - before.plain_runs);
    REQUIRE_OK(device.Copy(seen.data(), there, bytes));
    outcome.losses.push_back(result.loss_sum);
    outcome.moments.push_back(moments);
    outcome.parameters.push_back(seen);
    std::fill(parameters.begin(), parameters.end(), NAN);  // They are not read again...
    if (step != 2) continue;
    parameters = seen;  // ...except after a step of another kind.
    REQUIRE_OK(network->Evaluate(batch.view(), parameters, moments));
  }
  device.Free(velocity);
  CHECK(device.captures_refused() == 0);
  // Parameters went up with the first step, and after the evaluation; nothing of them came down.
  CHECK(copied[1] == copied[0] - bytes);
  CHECK(copied == std::vector<int64_t>{copied[0], copied[1], copied[1], copied[0], copied[1]});
  // Nothing is exchanged between the ops of a pass: each is one graph, from its second run on.
  CHECK(launches == std::vector<int64_t>{0, 2, 2, 2, 2});
  CHECK(plain_runs[0] > 0);
  CHECK(plain_runs == std::vector<int64_t>{plain_runs[0], 0, 0, 0, 0});
  return outcome;
}

TEST_CASE("In place: a device that keeps its parameters trains as if servers updated them",
          "[worker][training]") {
  const auto type = GENERATE(kernels::DataType::kFloat32, kernels::DataType::kBfloat16);
  for (const SmallNet& net : kSmallNets) {
    INFO(net.name);
    const ModelPlan plan = PlanSmallNet(net.text, net.input);
    for (uint64_t seed = 0; seed <= kernels::kFakeDeviceOrders; ++seed) {
      INFO("seed " << seed);
      FakeDevice exchanging(kernels::MakeCpuBackend(), {.seed = seed, .tensor_type = type});
      FakeDevice keeping(kernels::MakeCpuBackend(), {.seed = seed, .tensor_type = type});
      const Outcome outcome = InPlace(plan, keeping);
      CHECK(outcome == ByExchange(plan, exchanging));
      CHECK(std::isfinite(outcome.losses.back()));
      CHECK(keeping.counts().launches > 0);
    }
  }
}

TEST_CASE("In place: what is not on one device is refused", "[worker][training]") {
  const ModelPlan plan = PlanSmallNet(kSmallNets[0].text, kSmallNets[0].input);
  const auto host = kernels::MakeCpuBackend();
  REQUIRE_OK_AND_ASSIGN(const auto network, Network::Create(plan, *host, kBatch));
  const Batch batch = RandomBatch(plan, 2);
  CHECK_STATUS(network->TrainInPlace(batch.view(), InitialParameters(plan), 1, kScale, {}, nullptr),
               absl::StatusCode::kFailedPrecondition,
               "parameters stay on one device, and there is not one");
}

}  // namespace
}  // namespace capstan::worker::in_place_test
