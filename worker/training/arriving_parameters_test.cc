// Tests of steps whose parameters arrive during the forward pass, on the host and on a device.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "common/model/initial_values.h"
#include "common/model/tables.h"
#include "common/testing/status_matchers.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/testing/fake_device.h"
#include "worker/training/network.h"
#include "worker/training/testing/small_nets.h"

namespace capstan::worker::arriving_parameters_test {
namespace {

constexpr int64_t kBatch = 8;
constexpr uint64_t kSeeds = 2 * kernels::kFakeDeviceOrders;
constexpr size_t kNone = 1000;

struct Outcome {
  std::vector<float> gradient, statistics;
  double loss = 0;
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

// A network whose parameters are NaN until they are asked for.
class Arrivals {
 public:
  Arrivals(const ModelPlan& plan, kernels::Backend& backend)
      : plan_(plan), on_device_(backend.device() != nullptr) {
    auto created = Network::Create(plan, backend, kBatch);
    REQUIRE_OK(created);
    network_ = std::move(created).value();
    values_.resize(static_cast<size_t>(plan.parameter_count));
    FillInitialValues(MakeTables(plan)[0], 3, 0, absl::MakeSpan(values_));
  }

  // Call number `forgotten` of ParametersNeeded does not wait; call `refused` returns false.
  absl::Status Forward(uint64_t seed, size_t forgotten = kNone, size_t refused = kNone) {
    batch_ = RandomBatch(plan_, kBatch, seed);
    place_.assign(values_.size(), NAN);
    asked.clear();
    return network_->Forward(batch_.view(), place_, seed, [&](int64_t end) {
      asked.push_back(end);
      if (asked.size() - 1 == refused) return false;
      if (asked.size() - 1 == forgotten) return true;
      const auto begin = asked.size() < 2 ? int64_t{0} : asked[asked.size() - 2];
      std::copy(values_.begin() + begin, values_.begin() + end, place_.begin() + begin);
      return true;
    });
  }
  // Overwrites the parameters that are not read any more, as the next pull would.
  absl::StatusOr<Outcome> Backward() {
    if (on_device_) place_.assign(place_.size(), NAN);
    Outcome outcome{
        .gradient = std::vector<float>(values_.size(), NAN),
        .statistics = std::vector<float>(static_cast<size_t>(plan_.statistic_count), NAN)};
    const absl::StatusOr<BatchResult> result = network_->Backward(
        0.5f, absl::MakeSpan(outcome.gradient), absl::MakeSpan(outcome.statistics),
        [this](int64_t first) { std::fill(place_.begin() + first, place_.end(), NAN); });
    if (!result.ok()) return result.status();
    outcome.loss = result->loss_sum;
    return outcome;
  }
  absl::StatusOr<Outcome> Step(uint64_t seed, size_t forgotten = kNone) {
    const absl::Status begun = Forward(seed, forgotten);
    if (!begun.ok()) return begun;
    return Backward();
  }
  // Runs a step whose parameters are there from the beginning.
  Outcome WholeStep(uint64_t seed) {
    const Batch batch = RandomBatch(plan_, kBatch, seed);
    Outcome outcome{.gradient = std::vector<float>(values_.size()),
                    .statistics = std::vector<float>(static_cast<size_t>(plan_.statistic_count))};
    REQUIRE_OK_AND_ASSIGN(
        const BatchResult result,
        network_->Train(batch.view(), values_, 0.5f, seed, absl::MakeSpan(outcome.gradient),
                        absl::MakeSpan(outcome.statistics)));
    outcome.loss = result.loss_sum;
    return outcome;
  }
  Network& network() { return *network_; }
  const std::vector<float>& values() const { return values_; }

  std::vector<int64_t> asked;  // The ends that the last step asked for.

 private:
  const ModelPlan& plan_;
  const bool on_device_;
  std::unique_ptr<Network> network_;
  std::vector<float> values_, place_;
  Batch batch_;
};

std::vector<Outcome> WholeSteps(const ModelPlan& plan, uint64_t count) {
  const auto backend = kernels::MakeCpuBackend();
  Arrivals whole(plan, *backend);
  std::vector<Outcome> outcomes;
  for (uint64_t seed = 0; seed < count; ++seed) outcomes.push_back(whole.WholeStep(seed));
  return outcomes;
}

TEST_CASE("Network: parameters that arrive in parts give the bits of those that were there",
          "[worker][training]") {
  for (const SmallNet& net : kSmallNets) {
    INFO(net.name);
    const ModelPlan plan = PlanSmallNet(net.text, net.input);
    const std::vector<Outcome> expected = WholeSteps(plan, 3);
    const auto check = [&](kernels::Backend& backend) {
      Arrivals arrivals(plan, backend);
      for (uint64_t seed = 0; seed < 3; ++seed) {  // A device runs, records and launches the steps.
        REQUIRE_OK_AND_ASSIGN(const Outcome outcome, arrivals.Step(seed));
        CHECK(outcome == expected[seed]);
        REQUIRE_FALSE(arrivals.asked.empty());
        CHECK(std::is_sorted(arrivals.asked.begin(), arrivals.asked.end()));
        CHECK(arrivals.asked.back() == plan.parameter_count);
      }
    };
    check(*kernels::MakeCpuBackend());
    for (uint64_t seed = 0; seed < kSeeds; ++seed) {
      INFO("seed " << seed);
      kernels::FakeDevice device(kernels::MakeCpuBackend(), {.seed = seed});
      check(device);
    }
  }
}

TEST_CASE("Network: the first layers compute before the last parameters are asked for",
          "[worker][training]") {
  const ModelPlan plan = PlanSmallNet("zoo: 'lenet'", {28, 28, 1});
  const auto backend = kernels::MakeCpuBackend();
  REQUIRE_OK_AND_ASSIGN(const auto network, Network::Create(plan, *backend, kBatch));
  std::vector<float> parameters(static_cast<size_t>(plan.parameter_count));
  FillInitialValues(MakeTables(plan)[0], 3, 0, absl::MakeSpan(parameters));
  Batch batch = RandomBatch(plan, kBatch);
  const Batch same = batch;
  std::vector<float> gradient(parameters.size());
  int64_t calls = 0;
  const auto needed = [&](int64_t) {
    // Only the first layer reads the images.
    if (++calls == 2) std::fill(batch.images.begin(), batch.images.end(), NAN);
    return true;
  };
  REQUIRE_OK(network->Forward(batch.view(), parameters, 1, needed));
  CHECK(calls == 4);           // Two convolutions, two fully connected layers.
  batch.images = same.images;  // The first layer's gradient reads them again.
  REQUIRE_OK_AND_ASSIGN(const BatchResult result,
                        network->Backward(1.0f, absl::MakeSpan(gradient), {}));
  CHECK(std::isfinite(result.loss_sum));
}

TEST_CASE("Network: each wait for parameters is needed", "[worker][training]") {
  const SmallNet& net = kSmallNets[2];
  const ModelPlan plan = PlanSmallNet(net.text, net.input);
  const std::vector<Outcome> expected = WholeSteps(plan, 1);
  const auto check = [&](kernels::Backend& backend) {
    Arrivals arrivals(plan, backend);
    REQUIRE_OK(arrivals.Step(0));
    const size_t calls = arrivals.asked.size();
    REQUIRE(calls > 1);
    for (size_t call = 0; call < calls; ++call) {
      INFO("call " << call);
      const absl::StatusOr<Outcome> outcome = arrivals.Step(0, call);
      CHECK_FALSE((outcome.ok() && *outcome == expected[0]));
    }
    REQUIRE_OK_AND_ASSIGN(const Outcome after, arrivals.Step(0));
    CHECK(after == expected[0]);
  };
  check(*kernels::MakeCpuBackend());
  kernels::FakeDevice device(kernels::MakeCpuBackend(), {.seed = kernels::kFakeDeviceOrders});
  check(device);
}

TEST_CASE("Network: a pass whose parameters do not come is given up, and another may begin",
          "[worker][training]") {
  const SmallNet& net = kSmallNets[2];
  const ModelPlan plan = PlanSmallNet(net.text, net.input);
  const std::vector<Outcome> expected = WholeSteps(plan, 3);
  const auto check = [&](kernels::Backend& backend) {
    Arrivals arrivals(plan, backend);
    for (uint64_t seed = 0; seed < 3; ++seed) {
      for (const size_t refused : {size_t{0}, size_t{1}}) {
        CHECK_STATUS(arrivals.Forward(seed + 1, kNone, refused), absl::StatusCode::kCancelled,
                     "will not come");
        CHECK_STATUS(arrivals.Backward(), absl::StatusCode::kFailedPrecondition,
                     "no forward pass before it");
      }
      REQUIRE_OK(arrivals.Forward(seed + 1));  // Its gradient is never asked for.
      REQUIRE_OK_AND_ASSIGN(const Outcome outcome, arrivals.Step(seed));
      CHECK(outcome == expected[seed]);
      // A step must not go on either after something else was computed.
      REQUIRE_OK(arrivals.Forward(seed));
      const Batch batch = RandomBatch(plan, kBatch);
      const std::vector<float> statistics(static_cast<size_t>(plan.statistic_count), 0.5f);
      REQUIRE_OK(arrivals.network().Evaluate(batch.view(), arrivals.values(), statistics));
      CHECK_STATUS(arrivals.Backward(), absl::StatusCode::kFailedPrecondition, "no forward pass");
    }
  };
  check(*kernels::MakeCpuBackend());
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    kernels::FakeDevice device(kernels::MakeCpuBackend(), {.seed = seed});
    check(device);
  }
}

}  // namespace
}  // namespace capstan::worker::arriving_parameters_test
