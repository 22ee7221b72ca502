// Tests of the 16-bit exchange between host and devices: the same numbers in half the bytes.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/model/initial_values.h"
#include "common/model/tables.h"
#include "common/status/status_macros.h"
#include "common/testing/status_matchers.h"
#include "common/wire/number_format.h"
#include "kernels/backend_group.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/testing/fake_device.h"
#include "worker/training/network.h"
#include "worker/training/testing/small_nets.h"

namespace capstan::worker::exchange_formats_test {
namespace {

using kernels::BackendGroup;
using kernels::DataType;
using kernels::FakeDevice;

constexpr uint64_t kSeeds = 2 * kernels::kFakeDeviceOrders;
constexpr int64_t kBatch = 12;

constexpr ExchangeFormats Halves(NumberFormat wire) {
  return {.gradients = wire, .parameters = wire};
}

// One device, or several that share each batch.
struct Devices {
  Devices(int count, DataType tensors, uint64_t seed) {
    std::vector<std::unique_ptr<kernels::DeviceBackend>> devices;
    for (int i = 0; i < count; ++i) {
      auto device = std::make_unique<FakeDevice>(
          kernels::MakeCpuBackend(),
          FakeDevice::Options{
              .seed = seed + static_cast<uint64_t>(i), .tensor_type = tensors, .index = i});
      if (i == 0) first = device.get();
      devices.push_back(std::move(device));
    }
    if (count == 1) {
      group = std::make_unique<BackendGroup>(std::move(devices[0]));
      return;
    }
    auto joined = BackendGroup::Join(std::move(devices));
    REQUIRE_OK(joined);
    group = std::make_unique<BackendGroup>(*std::move(joined));
  }

  FakeDevice* first = nullptr;
  std::unique_ptr<BackendGroup> group;
};

std::vector<float> Rounded(NumberFormat format, const std::vector<float>& values) {
  std::vector<char> halves(values.size() * 2);
  std::vector<float> rounded(values.size());
  EncodeNumbers(format, values, halves.data());
  DecodeNumbers(format, halves.data(), absl::MakeSpan(rounded));
  return rounded;
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// The values that servers get, and the task's other results, to be compared bit for bit.
struct Outcome {
  std::vector<std::vector<float>> pushed, moments;
  std::vector<double> losses;
  std::vector<int64_t> correct;
  bool parts_were_final = true, finite = true;
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

// A task whose servers hold fp32 and exchange the format `wire` with it.
class Task {
 public:
  Task(const ModelPlan& plan, NumberFormat wire) : plan_(plan), wire_(wire) {
    masters_.resize(static_cast<size_t>(plan.parameter_count));
    FillInitialValues(MakeTables(plan)[0], 3, 0, absl::MakeSpan(masters_));
    statistics_.assign(static_cast<size_t>(plan.statistic_count), 0.01f);
  }

  const std::vector<float>& masters() const { return masters_; }
  std::vector<float> Pulled() const { return Rounded(wire_, masters_); }

  // Runs a step with `parameters`, and then the servers' update. Returns the gradient as it
  // arrived. Exchanges 16-bit values if possible.
  absl::StatusOr<std::vector<float>> Train(Network& network, std::vector<float> parameters,
                                           uint64_t step, Outcome* outcome) {
    const Batch batch = LabelledBatch(10 + step);
    std::vector<float> gradient(parameters.size(), NAN), moments(statistics_.size(), NAN);
    std::vector<float> parts(parameters.size());
    std::vector<uint16_t> halves(parameters.size(), 0x7fff), pulled(parameters.size());
    const auto [gradients, wire] = network.exchanges();
    const bool as_halves = gradients != NumberFormat::kFp32;
    const bool from_halves =
        wire != NumberFormat::kFp32 && SameBits(Rounded(wire, parameters), parameters);
    if (from_halves) EncodeNumbers(wire, parameters, reinterpret_cast<char*>(pulled.data()));
    int64_t told = plan_.parameter_count;
    const auto take = [&, format = gradients](int64_t first) {
      if (as_halves) {
        DecodeNumbers(format, reinterpret_cast<const char*>(halves.data()),
                      absl::MakeSpan(gradient));
      }
      std::copy(gradient.begin() + first, gradient.begin() + told, parts.begin() + first);
      told = first;
    };
    CAPSTAN_ASSIGN_OR_RETURN(
        const BatchResult result,
        network.Train(batch.view(),
                      from_halves ? ParameterView(absl::MakeConstSpan(pulled)) : parameters, 0.25f,
                      step,
                      as_halves ? GradientView(absl::MakeSpan(halves)) : absl::MakeSpan(gradient),
                      absl::MakeSpan(moments), take));
    outcome->finite = outcome->finite && result.gradient_finite;
    take(0);
    outcome->parts_were_final = outcome->parts_were_final && SameBits(parts, gradient);
    outcome->pushed.push_back(Rounded(wire_, gradient));
    outcome->moments.push_back(moments);
    Note(result, outcome);
    for (size_t i = 0; i < masters_.size(); ++i) masters_[i] -= 0.1f * outcome->pushed.back()[i];
    return gradient;
  }

  // Evaluates as tasks do, with the servers' fp32 parameters.
  absl::Status Evaluate(Network& network, Outcome* outcome) {
    const Batch batch = LabelledBatch(5);
    CAPSTAN_ASSIGN_OR_RETURN(const BatchResult result,
                             network.Evaluate(batch.view(), masters_, statistics_));
    Note(result, outcome);
    return absl::OkStatus();
  }

 private:
  // No sample is of class 0, because NaN logits would count as class 0.
  Batch LabelledBatch(uint64_t seed) const {
    Batch batch = RandomBatch(plan_, kBatch, seed);
    for (int32_t& label : batch.labels) label = std::max(label, 1);
    return batch;
  }
  static void Note(const BatchResult& result, Outcome* outcome) {
    outcome->losses.push_back(result.loss_sum);
    outcome->correct.push_back(result.correct);
  }

  const ModelPlan& plan_;
  const NumberFormat wire_;
  std::vector<float> masters_, statistics_;
};

// Runs steps until they are recorded and launched, with an evaluation in between.
absl::StatusOr<Outcome> RunSteps(const ModelPlan& plan, const BackendGroup& group,
                                 NumberFormat wire, const ExchangeFormats& formats) {
  CAPSTAN_ASSIGN_OR_RETURN(const auto network,
                           Network::Create(plan, group, kBatch, nullptr, formats));
  Task task(plan, wire);
  Outcome outcome;
  for (uint64_t step = 0; step < 4; ++step) {
    CAPSTAN_RETURN_IF_ERROR(task.Train(*network, task.Pulled(), step, &outcome).status());
    if (step == 1) CAPSTAN_RETURN_IF_ERROR(task.Evaluate(*network, &outcome));
  }
  return outcome;
}

TEST_CASE("Exchange formats: servers and tasks see the same bits, in every order",
          "[worker][training]") {
  const auto wire = GENERATE(NumberFormat::kBf16, NumberFormat::kFp16);
  const auto [devices, tensors] = GENERATE(table<int, DataType>(
      {{1, DataType::kFloat32}, {1, DataType::kBfloat16}, {3, DataType::kFloat32}}));
  for (const SmallNet& net : kSmallNets) {
    INFO(net.name << ", wire " << static_cast<int>(wire) << ", devices " << devices);
    const ModelPlan plan = PlanSmallNet(net.text, net.input);
    const Devices plain(devices, tensors, 0);
    REQUIRE_OK_AND_ASSIGN(const Outcome expected, RunSteps(plan, *plain.group, wire, {}));
    CHECK(expected.parts_were_final);
    CHECK(expected.finite);
    for (uint64_t seed = 0; seed < kSeeds; ++seed) {
      INFO("seed " << seed);
      const Devices halves(devices, tensors, seed);
      REQUIRE_OK_AND_ASSIGN(const Outcome outcome,
                            RunSteps(plan, *halves.group, wire, Halves(wire)));
      CHECK(outcome == expected);
    }
    if (devices > 1 || tensors != DataType::kFloat32) continue;
    const BackendGroup host(kernels::MakeCpuBackend());
    REQUIRE_OK_AND_ASSIGN(const Outcome on_host, RunSteps(plan, host, wire, Halves(wire)));
    CHECK(on_host == expected);
  }
}

TEST_CASE("Exchange formats: halves are half the bytes of parameters and gradient",
          "[worker][training]") {
  const ModelPlan plan = PlanSmallNet(kSmallNets[2].text, kSmallNets[2].input);
  const auto wire = NumberFormat::kBf16;
  const auto copied = [&](const ExchangeFormats& formats, bool rounded) {
    const Devices devices(1, DataType::kFloat32, 0);
    REQUIRE_OK_AND_ASSIGN(const auto network,
                          Network::Create(plan, *devices.group, kBatch, nullptr, formats));
    Task task(plan, wire);
    Outcome outcome;
    const std::vector<float> parameters = rounded ? task.Pulled() : task.masters();
    REQUIRE_OK(task.Train(*network, parameters, 1, &outcome));
    return devices.first->counts().copied_bytes;
  };
  const int64_t all = copied({}, true);
  CHECK(copied({.gradients = wire}, true) == all - 2 * plan.parameter_count);
  CHECK(copied({.parameters = wire}, true) == all - 2 * plan.parameter_count);
  CHECK(copied(Halves(wire), true) == all - 4 * plan.parameter_count);
  CHECK(copied({.parameters = wire}, false) > all - 2 * plan.parameter_count);
}

TEST_CASE("Exchange formats: a gradient comes rounded, parameters never are",
          "[worker][training]") {
  const ModelPlan plan = PlanSmallNet(kSmallNets[0].text, kSmallNets[0].input);
  const auto wire = NumberFormat::kBf16;
  const auto train = [&](const BackendGroup& group, bool rounded) {
    REQUIRE_OK_AND_ASSIGN(const auto network,
                          Network::Create(plan, group, kBatch, nullptr, Halves(wire)));
    Task task(plan, wire);
    Outcome outcome;
    const std::vector<float> parameters = rounded ? task.Pulled() : task.masters();
    REQUIRE_OK_AND_ASSIGN(std::vector<float> gradient,
                          task.Train(*network, parameters, 1, &outcome));
    return std::pair(gradient, outcome.losses[0]);
  };
  for (const bool rounded : {true, false}) {
    const auto [exact, loss] = train(BackendGroup(kernels::MakeCpuBackend()), rounded);
    CHECK_FALSE(SameBits(exact, Rounded(wire, exact)));
    const auto [came, loss_there] = train(*Devices(1, DataType::kFloat32, 0).group, rounded);
    CHECK(SameBits(came, Rounded(wire, exact)));
    CHECK(loss_there == loss);
  }
}

TEST_CASE("Exchange formats: parts are told up to the first that is not finite",
          "[worker][training]") {
  const ModelPlan plan = PlanSmallNet(kSmallNets[2].text, kSmallNets[2].input);
  const auto wire = GENERATE(NumberFormat::kFp32, NumberFormat::kBf16);
  for (const int devices : {0, 1, 3}) {
    INFO("wire " << static_cast<int>(wire) << ", devices " << devices);
    const bool halves_come = devices > 0 && wire != NumberFormat::kFp32;
    std::unique_ptr<Devices> fakes;
    std::unique_ptr<BackendGroup> host;
    if (devices == 0) host = std::make_unique<BackendGroup>(kernels::MakeCpuBackend());
    if (devices > 0) fakes = std::make_unique<Devices>(devices, DataType::kFloat32, 0);
    REQUIRE_OK_AND_ASSIGN(
        const auto network,
        Network::Create(plan, devices == 0 ? *host : *fakes->group, kBatch, nullptr, Halves(wire)));
    const auto size = static_cast<size_t>(plan.parameter_count);
    std::vector<float> parameters(size), gradient(size),
        moments(static_cast<size_t>(plan.statistic_count));
    std::vector<uint16_t> halves(size);
    FillInitialValues(MakeTables(plan)[0], 3, 0, absl::MakeSpan(parameters));
    const auto parts_told = [&](float scale) {
      const Batch batch = RandomBatch(plan, kBatch);
      int told = 0;
      const absl::StatusOr<BatchResult> result = network->Train(
          batch.view(), parameters, scale, 1,
          halves_come ? GradientView(absl::MakeSpan(halves)) : absl::MakeSpan(gradient),
          absl::MakeSpan(moments), [&told](int64_t) { ++told; });
      REQUIRE_OK(result);
      CHECK(result->gradient_finite == std::isfinite(scale));
      return told;
    };
    CHECK(parts_told(1.0f) > 0);
    CHECK(parts_told(INFINITY) == 0);
    CHECK(parts_told(1.0f) > 0);
  }
}

TEST_CASE("Exchange formats: each copy, conversion and wait is needed", "[worker][training]") {
  const ModelPlan plan = PlanSmallNet(kSmallNets[2].text, kSmallNets[2].input);
  const auto wire = NumberFormat::kBf16;
  const auto run = [&](uint64_t seed, FakeDevice::Call call, int64_t number, int64_t* counted) {
    const Devices devices(1, DataType::kFloat32, seed);
    devices.first->Forget(call, number);
    const auto outcome = RunSteps(plan, *devices.group, wire, Halves(wire));
    if (counted != nullptr) *counted = devices.first->calls_counted();
    return outcome;
  };
  for (const auto call : {FakeDevice::Call::kCopy, FakeDevice::Call::kConvert,
                          FakeDevice::Call::kWait, FakeDevice::Call::kAwait}) {
    int64_t calls = 0;
    REQUIRE_OK_AND_ASSIGN(const Outcome expected, run(0, call, -1, &calls));
    REQUIRE(calls > 10);
    for (int64_t number = 0; number < calls; ++number) {
      bool noticed = false;
      for (uint64_t seed = 0; seed < kSeeds && !noticed; ++seed) {
        const auto outcome = run(seed, call, number, nullptr);
        noticed = !outcome.ok() || !(*outcome == expected);
      }
      INFO("call " << static_cast<int>(call) << ", number " << number);
      CHECK(noticed);
    }
  }
}

}  // namespace
}  // namespace capstan::worker::exchange_formats_test
