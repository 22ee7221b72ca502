// Tests that Network on several devices gives the bits to which as many slots on the host add up,
// in any order of the devices' work; and that a forgotten call, or a lost device, is noticed.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "common/model/initial_values.h"
#include "common/model/tables.h"
#include "common/random/philox.h"
#include "common/testing/status_matchers.h"
#include "kernels/backend_group.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/testing/fake_device.h"
#include "worker/training/batch_parts.h"
#include "worker/training/network.h"
#include "worker/training/testing/small_nets.h"
#include "worker/training/trainer/gradient_step.h"

namespace capstan::worker::device_group_test {
namespace {

using kernels::FakeDevice;

constexpr uint64_t kSeeds = 2 * kernels::kFakeDeviceOrders;
constexpr int64_t kBatch = 16;
constexpr int32_t kFound = 2;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// `members` devices in one group; `options` may be changed by `change(member, options)`.
struct Devices {
  template <typename Change>
  Devices(int members, uint64_t seed, const Change& change) {
    std::vector<std::unique_ptr<kernels::DeviceBackend>> devices;
    for (int i = 0; i < members; ++i) {
      FakeDevice::Options options{.seed = seed + static_cast<uint64_t>(i), .index = i};
      change(i, options);
      auto device = std::make_unique<FakeDevice>(kernels::MakeCpuBackend(), options);
      fakes.push_back(device.get());
      devices.push_back(std::move(device));
    }
    auto joined = kernels::BackendGroup::Join(std::move(devices));
    REQUIRE_OK(joined);
    group = std::make_unique<kernels::BackendGroup>(*std::move(joined));
  }
  Devices(int members, uint64_t seed) : Devices(members, seed, [](int, FakeDevice::Options&) {}) {}

  std::vector<FakeDevice*> fakes;
  std::unique_ptr<kernels::BackendGroup> group;
};

// The results of a step.
struct Outcome {
  std::vector<float> gradient, statistics;
  int64_t correct = 0;
  double loss = 0;
  std::vector<float> logits = {};  // The logits of an evaluation.
  friend bool operator==(const Outcome& a, const Outcome& b) {
    // The order of the loss's sum in double depends on the number of parts.
    return a.gradient == b.gradient && a.statistics == b.statistics && a.correct == b.correct &&
           a.logits == b.logits && std::abs(a.loss - b.loss) <= 1e-12 * std::abs(a.loss);
  }
};

std::vector<float> InitialParameters(const ModelPlan& plan) {
  std::vector<float> parameters(static_cast<size_t>(plan.parameter_count));
  FillInitialValues(MakeTables(plan)[0], 3, 0, absl::MakeSpan(parameters));
  return parameters;
}

// No sample is of class 0, because NaN logits would count as class 0.
Batch LabelledBatch(const ModelPlan& plan, int64_t n, uint64_t seed) {
  Batch batch = RandomBatch(plan, n, seed);
  // Every other sample is of one class, so that each part has correct ones.
  for (size_t i = 0; i < batch.labels.size(); ++i) {
    batch.labels[i] = i % 2 == 0 ? kFound : std::max(batch.labels[i], 1);
  }
  return batch;
}

// Runs a step whose parameters arrive when they are asked for, and whose gradient leaves in parts.
absl::StatusOr<Outcome> TrainInParts(Network& network, const ModelPlan& plan, const Batch& batch,
                                     const std::vector<float>& parameters, uint64_t key,
                                     float scale) {
  std::vector<float> arrived(parameters.size(), kNan);
  int64_t there = 0;
  const auto needed = [&](int64_t end) {
    std::copy(parameters.begin() + there, parameters.begin() + end, arrived.begin() + there);
    there = end;
    return true;
  };
  Batch mine = batch;
  absl::Status status = network.Forward(mine.view(), arrived, key, needed);
  if (!status.ok()) return status;
  std::fill(arrived.begin(), arrived.end(), kNan);  // Devices have their copies.
  Outcome outcome;
  outcome.gradient.assign(parameters.size(), kNan);
  outcome.statistics.assign(static_cast<size_t>(plan.statistic_count), kNan);
  std::vector<float> parts(parameters.size(), kNan);
  int64_t told = plan.parameter_count;
  const auto ready = [&](int64_t first) {
    std::copy(outcome.gradient.begin() + first, outcome.gradient.begin() + told,
              parts.begin() + first);
    told = first;
  };
  const absl::StatusOr<BatchResult> result = network.Backward(
      scale, absl::MakeSpan(outcome.gradient), absl::MakeSpan(outcome.statistics), ready);
  if (!result.ok()) return result.status();
  // Takes the parts as they were when `ready` was called: they must have been final.
  std::copy(parts.begin() + told, parts.end(), outcome.gradient.begin() + told);
  outcome.correct = result->correct;
  outcome.loss = result->loss_sum;
  return outcome;
}

// Adds up parts [begin, begin + size) as servers do: two halves at a time.
std::vector<float> Sum(const std::vector<std::vector<float>>& parts, size_t begin, size_t size) {
  if (size == 1) return parts[begin];
  std::vector<float> sum = Sum(parts, begin, size / 2);
  if (begin + size / 2 >= parts.size()) return sum;
  const std::vector<float> more = Sum(parts, begin + size / 2, size / 2);
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += more[i];
  return sum;
}

// The sum of `members` slots on the host.
Outcome BySlots(const ModelPlan& plan, const Batch& batch, const std::vector<float>& parameters,
                uint64_t key, float scale, int64_t members) {
  const auto host = kernels::MakeCpuBackend();
  REQUIRE_OK_AND_ASSIGN(const auto network, Network::Create(plan, *host, kBatch));
  Outcome sum;
  std::vector<std::vector<float>> gradients, moments;
  Batch mine = batch;
  const int64_t n = mine.view().n();
  for (int64_t i = 0; i < members; ++i) {
    const BatchPart part = PartOf(n, i, members);
    std::vector<float>& gradient = gradients.emplace_back(parameters.size());
    std::vector<float>& statistics =
        moments.emplace_back(static_cast<size_t>(plan.statistic_count));
    if (part.n() == 0) continue;
    REQUIRE_OK_AND_ASSIGN(const BatchResult result,
                          network->Train(ViewOf(mine.view(), part), parameters, scale,
                                         i == 0 ? key : MixKey(key, static_cast<uint64_t>(i)),
                                         absl::MakeSpan(gradient), absl::MakeSpan(statistics)));
    const auto share = static_cast<float>(static_cast<double>(part.n()) / static_cast<double>(n));
    for (float& value : statistics) value *= share;
    sum.loss += result.loss_sum;
    sum.correct += result.correct;
  }
  sum.gradient = Sum(gradients, 0, 8);
  sum.statistics = Sum(moments, 0, 8);
  return sum;
}

// Runs steps of one size until they are recorded and launched, an evaluation, and batches that
// leave some members fewer samples than others, or none.
const std::vector<int64_t> kSizes = {kBatch, kBatch, kBatch, 11, 3, kBatch};

absl::StatusOr<std::vector<Outcome>> RunSteps(const ModelPlan& plan, Network& network,
                                              const std::vector<int64_t>& sizes = kSizes) {
  std::vector<float> parameters = InitialParameters(plan);
  std::vector<Outcome> outcomes;
  uint64_t step = 0;
  for (const int64_t n : sizes) {
    const Batch batch = LabelledBatch(plan, n, 10 + step);
    absl::StatusOr<Outcome> outcome = TrainInParts(network, plan, batch, parameters, step, 0.25f);
    if (!outcome.ok()) return outcome.status();
    outcomes.push_back(*std::move(outcome));
    for (float& value : parameters) value *= 0.875f;  // Each pass must get all of them again.
    Batch test = LabelledBatch(plan, n, 50 + step);
    // Means are small, so that ReLU passes values that depend on the parameters.
    std::vector<float> statistics(static_cast<size_t>(plan.statistic_count),
                                  0.01f * static_cast<float>(step + 1));
    const absl::StatusOr<BatchResult> tested =
        network.Evaluate(test.view(), parameters, statistics);
    if (!tested.ok()) return tested.status();
    outcomes.push_back({.correct = tested->correct, .loss = tested->loss_sum});
    network.AppendLogits(&outcomes.back().logits);
    // Members that had no samples then have some now.
    for (float& value : statistics) value += 0.005f;
    Batch more = LabelledBatch(plan, kBatch, 90 + step);
    const absl::StatusOr<BatchResult> again =
        network.Evaluate(more.view(), parameters, statistics, Parameters::kSame);
    if (!again.ok()) return again.status();
    outcomes.push_back({.correct = again->correct, .loss = again->loss_sum});
    network.AppendLogits(&outcomes.back().logits);
    for (float& value : parameters) value *= 0.875f;
    ++step;
  }
  return outcomes;
}

std::vector<Outcome> ExpectedSteps(const ModelPlan& plan, int64_t members,
                                   const std::vector<int64_t>& sizes = kSizes) {
  const auto host = kernels::MakeCpuBackend();
  REQUIRE_OK_AND_ASSIGN(const auto network, Network::Create(plan, *host, kBatch));
  REQUIRE_OK_AND_ASSIGN(std::vector<Outcome> outcomes, RunSteps(plan, *network, sizes));
  std::vector<float> parameters = InitialParameters(plan);
  uint64_t step = 0;
  for (const int64_t n : sizes) {
    outcomes[3 * step] =
        BySlots(plan, LabelledBatch(plan, n, 10 + step), parameters, step, 0.25f, members);
    for (float& value : parameters) value = value * 0.875f * 0.875f;  // Both passes multiply.
    ++step;
  }
  return outcomes;
}

absl::StatusOr<std::vector<Outcome>> RunOn(const ModelPlan& plan, const Devices& devices,
                                           const std::vector<int64_t>& sizes = kSizes) {
  absl::StatusOr<std::unique_ptr<Network>> network = Network::Create(plan, *devices.group, kBatch);
  if (!network.ok()) return network.status();
  return RunSteps(plan, **network, sizes);
}

TEST_CASE("Device group: the bits of as many slots, of any size, in every order",
          "[worker][training]") {
  const ModelPlan plan = PlanSmallNet(kSmallNets[2].text, kSmallNets[2].input);  // Batch norm.
  for (int members = 1; members <= 8; ++members) {
    const std::vector<Outcome> expected = ExpectedSteps(plan, members);
    for (uint64_t seed = 0; seed < kSeeds; seed += members <= 3 ? 1 : 5) {
      INFO(members << " members, seed " << seed);
      const Devices devices(members, seed);
      REQUIRE_OK_AND_ASSIGN(const std::vector<Outcome> outcomes, RunOn(plan, devices));
      CHECK(outcomes == expected);
      for (const FakeDevice* fake : devices.fakes) CHECK(fake->counts().launches > 0);
    }
  }
}

TEST_CASE("Device group: the bits of as many slots, whatever the layers", "[worker][training]") {
  for (const SmallNet& net : kSmallNets) {
    INFO(net.name);
    const ModelPlan plan = PlanSmallNet(net.text, net.input);
    const std::vector<Outcome> expected = ExpectedSteps(plan, 3);
    for (const uint64_t seed : {uint64_t{0}, uint64_t{4}, kernels::kFakeDeviceOrders}) {
      REQUIRE_OK_AND_ASSIGN(const std::vector<Outcome> outcomes, RunOn(plan, Devices(3, seed)));
      CHECK(outcomes == expected);
    }
  }
}

// Each part has so many samples that no two batches have the same labels there.
const std::vector<int64_t> kEvenSizes = {kBatch, kBatch, kBatch};

// True if some order gives other numbers, or an error, when call `number` of `call` of a member is
// left out.
bool IsNoticed(const ModelPlan& plan, const std::vector<Outcome>& expected, size_t member,
               FakeDevice::Call call, int64_t number) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    const Devices devices(2, seed);
    devices.fakes[member]->Forget(call, number);
    const auto outcomes = RunOn(plan, devices, kEvenSizes);
    if (!outcomes.ok() || !(*outcomes == expected)) return true;
  }
  return false;
}

TEST_CASE("Device group: each broadcast, sum, copy and wait of each member is needed",
          "[worker][training]") {
  using Call = FakeDevice::Call;
  const ModelPlan plan = PlanSmallNet(kSmallNets[5].text, kSmallNets[5].input);
  const std::vector<Outcome> expected = ExpectedSteps(plan, 2, kEvenSizes);
  for (const size_t member : {0, 1}) {
    for (const Call call : {Call::kTogether, Call::kCopy, Call::kWait, Call::kAwait}) {
      // Only the first device counts collective calls, and only it awaits parts of the gradient.
      if (member == 1 && (call == Call::kTogether || call == Call::kAwait)) continue;
      const Devices devices(2, 0);
      devices.fakes[member]->Forget(call, -1);
      REQUIRE_OK(RunOn(plan, devices, kEvenSizes));
      const int64_t calls = devices.fakes[member]->calls_counted();
      REQUIRE(calls > 5);
      for (int64_t number = 0; number < calls; ++number) {
        INFO("member " << member << ", call " << static_cast<int>(call) << ", number " << number);
        CHECK(IsNoticed(plan, expected, member, call, number));
      }
    }
  }
}

TEST_CASE("Device group: nothing is allocated, and parameters go up once, in the steady state",
          "[worker][training]") {
  const ModelPlan plan = PlanSmallNet(kSmallNets[2].text, kSmallNets[2].input);
  const Devices devices(4, 0);
  REQUIRE_OK_AND_ASSIGN(const auto network, Network::Create(plan, *devices.group, kBatch));
  const std::vector<float> parameters = InitialParameters(plan);
  const auto step = [&] {
    const Batch batch = LabelledBatch(plan, kBatch, 1);
    REQUIRE_OK(TrainInParts(*network, plan, batch, parameters, 1, 1.0f));
  };
  for (int i = 0; i < 3; ++i) step();
  std::vector<FakeDevice::Counts> before;
  for (const FakeDevice* fake : devices.fakes) before.push_back(fake->counts());
  step();
  const int64_t table = plan.parameter_count * 4;
  std::vector<int64_t> copied;
  for (size_t i = 0; i < 4; ++i) {
    CHECK(devices.fakes[i]->counts().allocations == before[i].allocations);
    copied.push_back(devices.fakes[i]->counts().copied_bytes - before[i].copied_bytes);
  }
  // The first device also copies parameters up and the gradient down.
  CHECK(copied[0] == copied[1] + 2 * table);
  CHECK(copied[1] == copied[3]);
}

TEST_CASE("Device group: the next batch is staged on all", "[worker][training]") {
  const ModelPlan plan = PlanSmallNet(kSmallNets[0].text, kSmallNets[0].input);
  const std::vector<float> parameters = InitialParameters(plan);
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    const Devices devices(3, seed);
    REQUIRE_OK_AND_ASSIGN(const auto network, Network::Create(plan, *devices.group, kBatch));
    std::vector<double> losses;
    for (uint64_t i = 0; i < 8; ++i) {
      // Every other batch is so small that one member has no samples.
      const auto batch_of = [&](uint64_t k) {
        return LabelledBatch(plan, k % 2 == 0 ? kBatch : 2, k % 4);
      };
      Batch batch = batch_of(i);
      // The images must not be read again.
      if (i > 0) std::fill(batch.images.begin(), batch.images.end(), kNan);
      BatchView view = batch.view();
      view.name = i + 1;
      const auto stage = [&] {
        Batch next = batch_of(i + 1);
        BatchView staged = next.view();
        staged.name = i + 2;
        REQUIRE_OK(network->Stage(staged));
      };
      std::vector<float> gradient(parameters.size());
      REQUIRE_OK_AND_ASSIGN(
          const BatchResult result,
          network->Train(view, parameters, 1.0f, 7, absl::MakeSpan(gradient), {}, nullptr, stage));
      losses.push_back(result.loss_sum);
    }
    for (size_t i = 4; i < losses.size(); ++i) CHECK(losses[i] == losses[i - 4]);
  }
}

TEST_CASE("Device group: a label out of range is named as the batch counts", "[worker][training]") {
  const ModelPlan plan = PlanSmallNet(kSmallNets[0].text, kSmallNets[0].input);
  const Devices devices(4, 0);
  REQUIRE_OK_AND_ASSIGN(const auto network, Network::Create(plan, *devices.group, kBatch));
  Batch bad = RandomBatch(plan, kBatch);
  bad.labels[13] = 5;
  CHECK_STATUS(network->Forward(bad.view(), InitialParameters(plan), 1),
               absl::StatusCode::kInvalidArgument, "label 13 is 5, expected 0 <= label < 5");
}

TEST_CASE("Device group: a device that is lost fails the step with its name, whenever it happens",
          "[worker][training]") {
  const ModelPlan plan = PlanSmallNet(kSmallNets[2].text, kSmallNets[2].input);
  for (const int lost : {0, 1, 2}) {
    const Devices whole(3, 0);
    REQUIRE_OK(RunOn(plan, whole));
    const int64_t runs = whole.fakes[static_cast<size_t>(lost)]->counts().runs;
    for (int64_t at = 0; at < runs; at += 7) {
      for (const uint64_t seed : {uint64_t{0}, uint64_t{3}, kernels::kFakeDeviceOrders}) {
        INFO("GPU " << lost << " at run " << at << ", seed " << seed);
        const Devices devices(3, seed, [&](int i, FakeDevice::Options& options) {
          if (i == lost) options.runs_until_lost = at;
        });
        CHECK(devices.group->Silent().empty());
        CHECK_STATUS(RunOn(plan, devices), absl::StatusCode::kUnavailable,
                     "fake GPU " + std::to_string(lost) + " has fallen off the bus");
        CHECK(devices.group->Silent() == std::vector<size_t>{static_cast<size_t>(lost)});
      }
    }
  }
}

TEST_CASE("Device group: a card with too little memory is named, with what its part needs",
          "[worker][training]") {
  const ModelPlan plan = PlanSmallNet("zoo: 'lenet'", {28, 28, 1});
  const auto small = [](int64_t bytes) {
    return [bytes](int i, FakeDevice::Options& options) {
      if (i == 2) options.memory_bytes = bytes;
    };
  };
  // Parameters and gradient have 3.4 MB.
  CHECK_STATUS(Network::Create(plan, *Devices(4, 0, small(1 << 20)).group, 64),
               absl::StatusCode::kResourceExhausted,
               "fake GPU 2, one of 4 that share each batch: no memory on the device for a batch of "
               "16: parameters, gradient and batches need");
  const Devices devices(4, 0, small(4 << 20));
  REQUIRE_OK_AND_ASSIGN(const auto network, Network::Create(plan, *devices.group, 64));
  const Batch batch = RandomBatch(plan, 64);
  Batch mine = batch;
  const absl::Status refused = network->Forward(mine.view(), InitialParameters(plan), 1);
  CHECK_STATUS(refused, absl::StatusCode::kResourceExhausted,
               "fake GPU 2, one of 4 that share each batch: no memory on the device for a batch of "
               "16");
  CHECK_THAT(std::string(refused.message()), Catch::Contains("the largest batch that fits is "));
}

TEST_CASE("Device group: fp16 is scaled by what no part overflows with", "[worker][training]") {
  const ModelPlan plan = PlanSmallNet(kSmallNets[2].text, kSmallNets[2].input);
  const auto run = [&](float scale) {
    const Devices devices(3, kernels::kFakeDeviceOrders, [](int, FakeDevice::Options& options) {
      options.tensor_type = kernels::DataType::kFloat16;
    });
    REQUIRE_OK_AND_ASSIGN(const auto network, Network::Create(plan, *devices.group, kBatch));
    LossScale::Options scaling;
    scaling.initial = scale;
    GradientStep step(plan, *network, {.loss_scale = scaling});
    Batch batch = LabelledBatch(plan, kBatch, 1);
    const std::vector<float> parameters = InitialParameters(plan);
    REQUIRE_OK(step.Forward({Epoch(0), {0, kBatch}, kBatch}, batch.view(), parameters));
    Outcome outcome;
    outcome.gradient.resize(parameters.size());
    outcome.statistics.resize(static_cast<size_t>(plan.statistic_count));
    REQUIRE_OK_AND_ASSIGN(
        const BatchResult result,
        step.Backward(absl::MakeSpan(outcome.gradient), absl::MakeSpan(outcome.statistics)));
    outcome.loss = result.loss_sum;
    return outcome;
  };
  const Outcome overflows = run(4194304.0f);
  bool found = false;
  for (float scale = 2097152.0f; scale >= 1024.0f && !found; scale /= 2) {
    found = run(scale) == overflows;
  }
  CHECK(found);
  CHECK_FALSE(run(1.0f) == overflows);  // Without a scale other values are rounded.
}

}  // namespace
}  // namespace capstan::worker::device_group_test
