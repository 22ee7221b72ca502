// Tests of scaled losses, on a device whose tensors are fp16.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "common/model/initial_values.h"
#include "common/model/tables.h"
#include "common/testing/status_matchers.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/testing/fake_device.h"
#include "worker/training/network.h"
#include "worker/training/testing/small_nets.h"
#include "worker/training/trainer/gradient_step.h"

namespace capstan::worker::loss_scaling_test {
namespace {

constexpr int64_t kBatch = 8;

struct Outcome {
  std::vector<float> gradient, statistics;
  double loss = 0;
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

// Steps on a fake device of fp16.
class Steps {
 public:
  Steps(const ModelPlan& plan, uint64_t seed, float initial_scale)
      : plan_(plan),
        device_(kernels::MakeCpuBackend(),
                {.seed = seed, .tensor_type = kernels::DataType::kFloat16}) {
    auto created = Network::Create(plan, device_, kBatch);
    REQUIRE_OK(created);
    network_ = std::move(created).value();
    step_ = std::make_unique<GradientStep>(
        plan_, *network_,
        GradientStep::Options{.loss_scale = LossScale::Options{.initial = initial_scale}});
    parameters_.resize(static_cast<size_t>(plan.parameter_count));
    FillInitialValues(MakeTables(plan)[0], 3, 0, absl::MakeSpan(parameters_));
  }

  absl::StatusOr<Outcome> Run(uint64_t seed, int64_t gradient_samples = kBatch) {
    batch_ = RandomBatch(plan_, kBatch, seed);
    Outcome outcome{.gradient = std::vector<float>(parameters_.size()),
                    .statistics = std::vector<float>(static_cast<size_t>(plan_.statistic_count))};
    std::vector<float> pulled = parameters_;
    const absl::Status begun =
        step_->Forward({Epoch(0), {0, kBatch}, gradient_samples}, batch_.view(), pulled);
    if (!begun.ok()) return begun;
    pulled.assign(pulled.size(), NAN);  // The next parameters have arrived.
    const absl::StatusOr<BatchResult> result =
        step_->Backward(absl::MakeSpan(outcome.gradient), absl::MakeSpan(outcome.statistics));
    if (!result.ok()) return result.status();
    outcome.loss = result->loss_sum;
    return outcome;
  }
  Network& network() { return *network_; }

 private:
  const ModelPlan& plan_;
  kernels::FakeDevice device_;
  std::unique_ptr<Network> network_;
  std::unique_ptr<GradientStep> step_;
  std::vector<float> parameters_;
  Batch batch_;
};

TEST_CASE("Loss scaling: a batch that overflows gives what a smaller scale had given at once",
          "[worker][training]") {
  for (const SmallNet& net : kSmallNets) {
    INFO(net.name);
    const ModelPlan plan = PlanSmallNet(net.text, net.input);
    // 2^21 / 8 samples gives more than 65504 if a class is missed by a half.
    Steps overflows(plan, kernels::kFakeDeviceOrders, 2097152.0f);
    std::vector<Outcome> outcomes;
    for (uint64_t seed = 0; seed < 4; ++seed) {
      REQUIRE_OK_AND_ASSIGN(Outcome outcome, overflows.Run(seed));
      outcomes.push_back(std::move(outcome));
    }
    // The scale after the first batch is one of these powers of two.
    bool found = false;
    for (float scale = 1048576.0f; scale >= 1024.0f && !found; scale /= 2) {
      Steps fits(plan, 2, scale);
      found = true;
      for (uint64_t seed = 0; seed < 4 && found; ++seed) {
        REQUIRE_OK_AND_ASSIGN(const Outcome outcome, fits.Run(seed));
        found = outcome == outcomes[seed];
      }
    }
    CHECK(found);
  }
}

TEST_CASE("Loss scaling: it keeps gradients that fp16 would lose", "[worker][training]") {
  const ModelPlan plan = PlanSmallNet("zoo: 'lenet'", {28, 28, 1});
  const auto host = kernels::MakeCpuBackend();
  REQUIRE_OK_AND_ASSIGN(const auto network, Network::Create(plan, *host, kBatch));
  std::vector<float> parameters(static_cast<size_t>(plan.parameter_count));
  FillInitialValues(MakeTables(plan)[0], 3, 0, absl::MakeSpan(parameters));
  const Batch batch = RandomBatch(plan, kBatch, 1);
  std::vector<float> exact(parameters.size());
  constexpr int64_t kSamples = 1 << 22;  // So large an update makes gradients below 6e-8.
  REQUIRE_OK(
      network->Train(batch.view(), parameters, 1.0f / kSamples, 0, absl::MakeSpan(exact), {}));
  const auto error = [&](float scale) {
    Steps steps(plan, 1, scale);
    REQUIRE_OK_AND_ASSIGN(const Outcome outcome, steps.Run(1, kSamples));
    double difference = 0, size = 0;
    for (size_t i = 0; i < exact.size(); ++i) {
      difference += std::pow(static_cast<double>(outcome.gradient[i]) - exact[i], 2);
      size += std::pow(static_cast<double>(exact[i]), 2);
    }
    return std::sqrt(difference / size);
  };
  CHECK(error(65536.0f) < 0.05);
  CHECK(error(1.0f) > 0.5);
}

TEST_CASE("Network: a step can be repeated once it has ended, and nothing else came between",
          "[worker][training]") {
  const ModelPlan plan = PlanSmallNet(kSmallNets[2].text, kSmallNets[2].input);
  for (uint64_t seed = 0; seed < 2 * kernels::kFakeDeviceOrders; ++seed) {
    Steps steps(plan, seed, 1024.0f);
    Network& network = steps.network();
    CHECK_STATUS(network.Repeat(), absl::StatusCode::kFailedPrecondition, "no step of a device");
    for (uint64_t i = 0; i < 3; ++i) {  // The steps are run, then recorded, then launched.
      REQUIRE_OK_AND_ASSIGN(const Outcome first, steps.Run(i));
      REQUIRE_OK(network.Repeat());
      std::vector<float> gradient(first.gradient.size()), statistics(first.statistics.size());
      REQUIRE_OK_AND_ASSIGN(
          const BatchResult again,
          network.Backward(1.0f / kBatch, absl::MakeSpan(gradient), absl::MakeSpan(statistics)));
      CHECK(again.loss_sum == first.loss);
      CHECK(statistics == first.statistics);
      CHECK(gradient != first.gradient);  // Without a scale other values are rounded.
    }
    const Batch batch = RandomBatch(plan, kBatch);
    const std::vector<float> parameters(static_cast<size_t>(plan.parameter_count));
    REQUIRE_OK(network.Forward(batch.view(), parameters, 1));
    CHECK_STATUS(network.Repeat(), absl::StatusCode::kFailedPrecondition, "no step of a device");
  }
}

}  // namespace
}  // namespace capstan::worker::loss_scaling_test
