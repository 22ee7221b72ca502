// Tests that Network on a device gives the same bits as in host memory, in any order of the
// device's work, and that a forgotten call is noticed (kernels/testing/fake_device.h).
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/model/initial_values.h"
#include "common/model/tables.h"
#include "common/testing/status_matchers.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/testing/fake_device.h"
#include "worker/training/network.h"
#include "worker/training/testing/small_nets.h"

namespace capstan::worker::device_network_test {
namespace {

using kernels::FakeDevice;

constexpr uint64_t kSeeds = 2 * kernels::kFakeDeviceOrders;
constexpr int64_t kBatch = 16;

// The results of all steps, in their order.
struct Outcome {
  std::vector<std::vector<float>> arrays;
  std::vector<double> losses;
  std::vector<int64_t> correct;
  bool parts_were_final = true;  // Each part had its final bits when `ready` was called.
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

// A network with parameters that move from step to step, as if servers updated them.
class Worker {
 public:
  Worker(const ModelPlan& plan, kernels::Backend& backend) : plan_(plan) {
    auto created = Network::Create(plan, backend, kBatch);
    REQUIRE_OK(created);
    network_ = std::move(created).value();
    parameters_.resize(static_cast<size_t>(plan.parameter_count));
    FillInitialValues(MakeTables(plan)[0], 3, 0, absl::MakeSpan(parameters_));
    // Means are small, so that ReLU passes values that depend on the parameters.
    statistics_.assign(static_cast<size_t>(plan.statistic_count), 0.01f);
  }

  // Overwrites every array at the end, as its owner may.
  absl::Status Train(Batch batch, uint64_t key, Outcome* outcome, float scale = 0.25f) {
    std::vector<float> gradient(parameters_.size(), NAN), moments(statistics_.size(), NAN);
    std::vector<std::vector<float>> parts;
    int64_t told = plan_.parameter_count;
    const auto ready = [&](int64_t first) {
      REQUIRE(first < told);
      REQUIRE(first > 0);
      parts.emplace_back(gradient.begin() + first, gradient.begin() + told);
      told = first;
      // These parameters are not read any more.
      std::fill(parameters_.begin() + first, parameters_.end(), NAN);
    };
    const std::vector<float> before = parameters_;
    const absl::StatusOr<BatchResult> result =
        network_->Train(batch.view(), parameters_, scale, key, absl::MakeSpan(gradient),
                        absl::MakeSpan(moments), ready);
    if (!result.ok()) return result.status();
    parts.emplace_back(gradient.begin(), gradient.begin() + told);
    std::vector<float> in_parts;
    for (size_t i = parts.size(); i-- > 0;) {
      in_parts.insert(in_parts.end(), parts[i].begin(), parts[i].end());
    }
    // Compares NaN as well: a call that was left out may leave some.
    if (std::memcmp(in_parts.data(), gradient.data(), gradient.size() * sizeof(float)) != 0) {
      outcome->parts_were_final = false;
    }
    for (size_t i = 0; i < before.size(); ++i) parameters_[i] = before[i] - 0.1f * gradient[i];
    outcome->arrays.push_back(gradient);
    outcome->arrays.push_back(moments);
    Note(*result, outcome);
    return absl::OkStatus();
  }

  // Evaluates batches with the same parameters, but each with its own statistics.
  absl::Status Evaluate(std::vector<Batch> batches, Outcome* outcome) {
    Parameters which = Parameters::kNew;
    for (Batch& batch : batches) {
      const absl::StatusOr<BatchResult> result =
          network_->Evaluate(batch.view(), parameters_, statistics_, which);
      if (!result.ok()) return result.status();
      Note(*result, outcome);
      which = Parameters::kSame;
      for (float& value : statistics_) value += 0.02f;
    }
    for (float& value : parameters_) value *= 0.75f;  // The next step must upload all of them.
    return absl::OkStatus();
  }

  Network& network() { return *network_; }

 private:
  static void Note(const BatchResult& result, Outcome* outcome) {
    outcome->losses.push_back(result.loss_sum);
    outcome->correct.push_back(result.correct);
  }

  const ModelPlan& plan_;
  std::unique_ptr<Network> network_;
  std::vector<float> parameters_, statistics_;
};

// No sample is of class 0, because NaN logits would count as class 0.
Batch LabelledBatch(const ModelPlan& plan, int64_t n, uint64_t seed) {
  Batch batch = RandomBatch(plan, n, seed);
  for (int32_t& label : batch.labels) label = std::max(label, 1);
  return batch;
}

// Runs steps of one size until they are recorded and launched, an evaluation, a smaller batch,
// another scale, and the first size again.
absl::StatusOr<Outcome> RunSteps(const ModelPlan& plan, kernels::Backend& backend) {
  Worker worker(plan, backend);
  Outcome outcome;
  for (uint64_t i = 0; i < 3; ++i) {
    absl::Status status = worker.Train(LabelledBatch(plan, kBatch, 10 + i), i, &outcome);
    if (!status.ok()) return status;
  }
  absl::Status status =
      worker.Evaluate({LabelledBatch(plan, kBatch, 20), LabelledBatch(plan, kBatch, 24)}, &outcome);
  if (status.ok()) status = worker.Train(LabelledBatch(plan, 11, 21), 4, &outcome);
  if (status.ok()) status = worker.Train(LabelledBatch(plan, kBatch, 22), 5, &outcome, 0.5f);
  if (status.ok()) status = worker.Train(LabelledBatch(plan, kBatch, 23), 6, &outcome);
  if (!status.ok()) return status;
  return outcome;
}

FakeDevice MakeDevice(uint64_t seed) {
  return FakeDevice(kernels::MakeCpuBackend(), {.seed = seed});
}

Outcome OnHost(const ModelPlan& plan) {
  const auto backend = kernels::MakeCpuBackend();
  REQUIRE_OK_AND_ASSIGN(Outcome outcome, RunSteps(plan, *backend));
  CHECK(outcome.parts_were_final);
  return outcome;
}

TEST_CASE("Device network: the bits of the host, in every order", "[worker][training]") {
  for (const SmallNet& net : kSmallNets) {
    INFO(net.name);
    const ModelPlan plan = PlanSmallNet(net.text, net.input);
    const Outcome expected = OnHost(plan);
    for (uint64_t seed = 0; seed < kSeeds; ++seed) {
      INFO("seed " << seed);
      FakeDevice device = MakeDevice(seed);
      REQUIRE_OK_AND_ASSIGN(const Outcome outcome, RunSteps(plan, device));
      CHECK(outcome == expected);
      CHECK(device.counts().launches > 0);
    }
  }
}

TEST_CASE("Device network: models of the zoo give the host's bits", "[worker][training]") {
  for (const char* zoo : {"zoo: 'lenet'", "zoo: 'resnet20'"}) {
    INFO(zoo);
    const ModelPlan plan = PlanSmallNet(zoo, {28, 28, 1});
    FakeDevice device = MakeDevice(kernels::kFakeDeviceOrders);
    REQUIRE_OK_AND_ASSIGN(const Outcome outcome, RunSteps(plan, device));
    CHECK(outcome == OnHost(plan));
  }
}

TEST_CASE("Device network: in a steady step every op comes out of a graph, dropout's too",
          "[worker][training]") {
  for (const SmallNet& net : kSmallNets) {
    INFO(net.name);
    const ModelPlan plan = PlanSmallNet(net.text, net.input);
    FakeDevice device = MakeDevice(0);
    Worker worker(plan, device);
    Outcome outcome;
    for (uint64_t i = 0; i < 2; ++i) {
      REQUIRE_OK(worker.Train(LabelledBatch(plan, kBatch, i), i, &outcome));
    }
    const FakeDevice::Counts before = device.counts();
    REQUIRE_OK(worker.Train(LabelledBatch(plan, kBatch, 2), 2, &outcome));
    CHECK(device.counts().runs > before.runs);
    CHECK(device.counts().plain_runs == before.plain_runs);
  }
}

TEST_CASE("Device network: recorded steps draw a mask of their own each, the host's",
          "[worker][training]") {
  const SmallNet& net = kSmallNets[4];
  const ModelPlan plan = PlanSmallNet(net.text, net.input);
  const auto host = kernels::MakeCpuBackend();
  FakeDevice device = MakeDevice(kernels::kFakeDeviceOrders);
  std::vector<float> parameters(static_cast<size_t>(plan.parameter_count));
  FillInitialValues(MakeTables(plan)[0], 3, 0, absl::MakeSpan(parameters));
  const Batch batch = LabelledBatch(plan, kBatch, 10);
  std::vector<std::vector<float>> gradients[2];  // The host's and the device's, in step order.
  for (kernels::Backend* const backend : {host.get(), static_cast<kernels::Backend*>(&device)}) {
    REQUIRE_OK_AND_ASSIGN(const auto network, Network::Create(plan, *backend, kBatch));
    for (const uint64_t key : {1, 2, 3, 4, 3}) {
      std::vector<float> gradient(parameters.size());
      REQUIRE_OK(network->Train(batch.view(), parameters, 1.0f, key, absl::MakeSpan(gradient), {}));
      gradients[backend == &device].push_back(gradient);
    }
  }
  CHECK(gradients[0] == gradients[1]);
  CHECK(gradients[1][2] == gradients[1][4]);
  for (size_t i = 1; i < 4; ++i) CHECK(gradients[1][i] != gradients[1][i - 1]);
}

// True if some order gives other numbers, or an error, when call `number` of `call` is left out.
bool IsNoticed(const ModelPlan& plan, const Outcome& expected, FakeDevice::Call call,
               int64_t number) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    FakeDevice device = MakeDevice(seed);
    device.Forget(call, number);
    const absl::StatusOr<Outcome> outcome = RunSteps(plan, device);
    if (!outcome.ok() || !(*outcome == expected)) return true;
  }
  return false;
}

TEST_CASE(
    "Device network: each copy, each wait between streams and each wait of the host is needed",
    "[worker][training]") {
  const SmallNet& net = kSmallNets[GENERATE(2, 4)];  // One has batch norm, one dropout.
  INFO(net.name);
  const ModelPlan plan = PlanSmallNet(net.text, net.input);
  const Outcome expected = OnHost(plan);
  for (const auto call :
       {FakeDevice::Call::kCopy, FakeDevice::Call::kWait, FakeDevice::Call::kAwait}) {
    FakeDevice device = MakeDevice(0);
    device.Forget(call, -1);
    REQUIRE_OK(RunSteps(plan, device));
    REQUIRE(device.calls_counted() > 10);
    for (int64_t number = 0; number < device.calls_counted(); ++number) {
      INFO("call " << static_cast<int>(call) << ", number " << number);
      CHECK(IsNoticed(plan, expected, call, number));
    }
  }
}

TEST_CASE("Device network: an evaluation's parameters go up once, and again after a step",
          "[worker][training]") {
  const ModelPlan plan = PlanSmallNet(kSmallNets[2].text, kSmallNets[2].input);
  FakeDevice device = MakeDevice(0);
  REQUIRE_OK_AND_ASSIGN(const auto network, Network::Create(plan, device, kBatch));
  std::vector<float> parameters(static_cast<size_t>(plan.parameter_count), 0.5f),
      gradient(parameters);
  std::vector<float> statistics(static_cast<size_t>(plan.statistic_count), 0.5f),
      moments(statistics);
  Batch batch = RandomBatch(plan, kBatch);
  const auto copied = [&](Parameters which) {
    const int64_t before = device.counts().copied_bytes;
    REQUIRE_OK(network->Evaluate(batch.view(), parameters, statistics, which));
    return device.counts().copied_bytes - before;
  };
  const int64_t all = copied(Parameters::kSame);  // The device has no parameters yet.
  CHECK(copied(Parameters::kSame) == all - plan.parameter_count * 4);
  CHECK(copied(Parameters::kNew) == all);
  CHECK(copied(Parameters::kSame) < all);
  REQUIRE_OK(network->Train(batch.view(), parameters, 1.0f, 1, absl::MakeSpan(gradient),
                            absl::MakeSpan(moments)));
  CHECK(copied(Parameters::kSame) == all);
}

TEST_CASE("Device network: nothing is allocated once each size has been seen twice",
          "[worker][training]") {
  const ModelPlan plan = PlanSmallNet(kSmallNets[2].text, kSmallNets[2].input);
  FakeDevice device = MakeDevice(0);
  Worker worker(plan, device);
  Outcome outcome;
  const auto round = [&] {
    for (const int64_t n : {kBatch, kBatch - 1}) {
      REQUIRE_OK(worker.Train(RandomBatch(plan, n), 1, &outcome));
      REQUIRE_OK(worker.Evaluate({RandomBatch(plan, n)}, &outcome));
    }
  };
  round();
  round();
  const int64_t allocations = device.counts().allocations;
  const int64_t launches = device.counts().launches;
  round();
  CHECK(device.counts().allocations == allocations);
  CHECK(device.counts().launches > launches);
}

TEST_CASE("Device network: a staged batch is uploaded once, another one under its name is not seen",
          "[worker][training]") {
  const ModelPlan plan = PlanSmallNet(kSmallNets[0].text, kSmallNets[0].input);
  const Outcome expected = OnHost(plan);
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    FakeDevice device = MakeDevice(seed);
    REQUIRE_OK_AND_ASSIGN(const auto network, Network::Create(plan, device, kBatch));
    std::vector<float> parameters(static_cast<size_t>(plan.parameter_count));
    FillInitialValues(MakeTables(plan)[0], 3, 0, absl::MakeSpan(parameters));
    std::vector<float> gradient(parameters.size());
    Outcome seen;
    // Step i stages the batch of step i + 1, except that every third step stages none.
    for (uint64_t i = 0; i < 9; ++i) {
      Batch batch = RandomBatch(plan, kBatch, 10 + i % 4);
      BatchView view = batch.view();
      view.name = i + 1;
      const auto stage = [&] {
        if (i % 3 == 2) return;
        Batch next = RandomBatch(plan, kBatch, 10 + (i + 1) % 4);
        BatchView staged = next.view();
        staged.name = i + 2;
        REQUIRE_OK(network->Stage(staged));
      };
      // The images of a staged batch are not read again.
      if (i % 3 != 0) std::fill(batch.images.begin(), batch.images.end(), NAN);
      const int64_t copied = device.counts().copied_bytes;
      REQUIRE_OK_AND_ASSIGN(
          const BatchResult result,
          network->Train(view, parameters, 1.0f, 7, absl::MakeSpan(gradient), {}, nullptr, stage));
      CHECK(std::isfinite(result.loss_sum));
      CHECK(device.counts().copied_bytes > copied);
      seen.losses.push_back(result.loss_sum);
    }
    for (size_t i = 4; i < seen.losses.size(); ++i) CHECK(seen.losses[i] == seen.losses[i - 4]);
    CHECK(seen.losses[0] != seen.losses[1]);
  }
}

// A batch of bytes, and the same batch as numbers.
struct BytesBatch {
  std::vector<uint8_t> pixels;
  std::vector<float> values;
  Batch numbers;
  BatchView view() const {
    return {.labels = numbers.labels, .pixels = pixels, .pixel_values = values};
  }
};
BytesBatch RandomBytes(const ModelPlan& plan, int64_t n, uint64_t seed) {
  BytesBatch batch{.numbers = RandomBatch(plan, n, seed)};
  const auto channels = static_cast<size_t>(plan.input.c);
  for (size_t i = 0; i < 256 * channels; ++i) {
    batch.values.push_back(ToUnitFloat(PhiloxWord(seed + 1, i)) - 0.5f);
  }
  for (size_t i = 0; i < batch.numbers.images.size(); ++i) {
    batch.pixels.push_back(static_cast<uint8_t>(PhiloxWord(seed, i)));
    batch.numbers.images[i] = batch.values[i % channels * 256 + batch.pixels[i]];
  }
  return batch;
}

TEST_CASE("Device network: images as bytes give the bits of what they mean, staged or not",
          "[worker][training]") {
  for (const kernels::DataType tensors :
       {kernels::DataType::kFloat32, kernels::DataType::kBfloat16}) {
    const ModelPlan plan = PlanSmallNet(kSmallNets[0].text, kSmallNets[0].input);
    const auto losses = [&](bool bytes, bool stages, uint64_t seed) {
      FakeDevice device(kernels::MakeCpuBackend(), {.seed = seed, .tensor_type = tensors});
      REQUIRE_OK_AND_ASSIGN(const auto network, Network::Create(plan, device, kBatch));
      std::vector<float> parameters(static_cast<size_t>(plan.parameter_count));
      FillInitialValues(MakeTables(plan)[0], 3, 0, absl::MakeSpan(parameters));
      std::vector<float> found(parameters.size());
      std::vector<double> sums;
      for (uint64_t i = 0; i < 3; ++i) {
        const BytesBatch batch = RandomBytes(plan, kBatch, 10 + i);
        const BytesBatch next = RandomBytes(plan, kBatch, 11 + i);
        BatchView view = bytes ? batch.view() : batch.numbers.view();
        view.name = i + 1;
        const auto stage = [&] {
          BatchView staged = bytes ? next.view() : next.numbers.view();
          staged.name = i + 2;
          if (stages) REQUIRE_OK(network->Stage(staged));
        };
        REQUIRE_OK_AND_ASSIGN(
            const BatchResult result,
            network->Train(view, parameters, 1.0f, 7, absl::MakeSpan(found), {}, nullptr, stage));
        sums.push_back(result.loss_sum);
        for (size_t k = 0; k < found.size(); ++k) parameters[k] -= 0.01f * found[k];
      }
      return sums;
    };
    const std::vector<double> expected = losses(false, false, 0);
    for (uint64_t seed = 0; seed < kSeeds; ++seed) {
      CHECK(losses(true, false, seed) == expected);
      CHECK(losses(true, true, seed) == expected);
    }
  }
}

TEST_CASE("Network: images as bytes are for devices, with what they mean", "[worker][training]") {
  const ModelPlan plan = PlanSmallNet(kSmallNets[0].text, kSmallNets[0].input);
  const BytesBatch batch = RandomBytes(plan, kBatch, 1);
  const std::vector<float> parameters(static_cast<size_t>(plan.parameter_count));
  const auto host = kernels::MakeCpuBackend();
  REQUIRE_OK_AND_ASSIGN(const auto on_host, Network::Create(plan, *host, kBatch));
  CHECK_STATUS(on_host->Forward(batch.view(), parameters, 1), absl::StatusCode::kInvalidArgument,
               "images as bytes, expected numbers");
  FakeDevice device = MakeDevice(0);
  REQUIRE_OK_AND_ASSIGN(const auto network, Network::Create(plan, device, kBatch));
  BatchView view = batch.view();
  view.pixel_values = view.pixel_values.first(255);
  CHECK_STATUS(network->Forward(view, parameters, 1), absl::StatusCode::kInvalidArgument,
               "pixel values has 255 elements, expected");
  view = batch.view();
  view.pixels = view.pixels.subspan(1);
  CHECK_STATUS(network->Forward(view, parameters, 1), absl::StatusCode::kInvalidArgument,
               "pixels has ");
}

TEST_CASE("Device network: a label out of range is refused before anything is uploaded",
          "[worker][training]") {
  const ModelPlan plan = PlanSmallNet(kSmallNets[0].text, kSmallNets[0].input);
  FakeDevice device = MakeDevice(0);
  Worker worker(plan, device);
  Outcome outcome;
  Batch bad = RandomBatch(plan, kBatch);
  bad.labels[3] = 5;
  CHECK_STATUS(worker.Train(bad, 1, &outcome), absl::StatusCode::kInvalidArgument,
               "label 3 is 5, expected 0 <= label < 5");
  CHECK(device.counts().copied_bytes == 0);
  REQUIRE_OK(worker.Train(RandomBatch(plan, kBatch), 1, &outcome));  // The next step succeeds.
}

TEST_CASE("Device network: bf16 and fp16 stay near fp32", "[worker][training]") {
  const auto type = GENERATE(kernels::DataType::kBfloat16, kernels::DataType::kFloat16);
  // Rounding moves each value by up to 2^-9, or 2^-12 (more for values below 2^-14). There are a
  // dozen layers, and batch norm over few values.
  const double tolerance = type == kernels::DataType::kBfloat16 ? 0.1 : 0.02;
  for (const SmallNet& net : kSmallNets) {
    INFO(net.name);
    const ModelPlan plan = PlanSmallNet(net.text, net.input);
    const auto host = kernels::MakeCpuBackend();
    Outcome exact, rounded, again;
    REQUIRE_OK(Worker(plan, *host).Train(RandomBatch(plan, kBatch), 1, &exact));
    for (Outcome* outcome : {&rounded, &again}) {
      FakeDevice device(kernels::MakeCpuBackend(), {.seed = 7, .tensor_type = type});
      REQUIRE_OK(Worker(plan, device).Train(RandomBatch(plan, kBatch), 1, outcome));
    }
    CHECK(rounded == again);
    CHECK_FALSE(rounded == exact);
    CHECK(rounded.losses[0] == Approx(exact.losses[0]).epsilon(0.03));
    const std::vector<float>& a = exact.arrays[0];
    const std::vector<float>& b = rounded.arrays[0];
    double error = 0, size = 0;
    for (size_t i = 0; i < a.size(); ++i) {
      error += std::pow(static_cast<double>(a[i]) - b[i], 2);
      size += std::pow(static_cast<double>(a[i]), 2);
    }
    CHECK(std::sqrt(error / size) < tolerance);
  }
}

TEST_CASE("Device network: too large a batch says what it needs, what is free, and what fits",
          "[worker][training]") {
  const ModelPlan plan = PlanSmallNet("zoo: 'lenet'", {28, 28, 1});
  FakeDevice device(kernels::MakeCpuBackend(), {.memory_bytes = 8 << 20});
  // Parameters and gradient have 3.4 MB; a sample 50 to 100 kB.
  REQUIRE_OK_AND_ASSIGN(const auto network, Network::Create(plan, device, 100));
  std::vector<float> parameters(static_cast<size_t>(plan.parameter_count));
  std::vector<float> gradient(parameters.size());
  const auto train = [&](Network& on, int64_t n) {
    const Batch batch = RandomBatch(plan, n);
    return on.Train(batch.view(), parameters, 1.0f, 1, absl::MakeSpan(gradient), {}).status();
  };
  const absl::Status refused = train(*network, 100);
  CHECK_STATUS(refused, absl::StatusCode::kResourceExhausted,
               "no memory on the device for a batch of 100: parameters, gradient and batches need");
  const std::string text(refused.message());
  const std::string mark = "the largest batch that fits is ";
  REQUIRE(text.find(mark) != std::string::npos);
  const int64_t largest = std::stoll(text.substr(text.find(mark) + mark.size()));
  CHECK(largest > 10);
  CHECK(largest < 100);
  // A network made for this size can train it; one made for one sample more cannot.
  for (const int64_t n : {largest, largest + 1}) {
    FakeDevice other(kernels::MakeCpuBackend(), {.memory_bytes = 8 << 20});
    REQUIRE_OK_AND_ASSIGN(const auto fitted, Network::Create(plan, other, n));
    CHECK(train(*fitted, n).ok() == (n == largest));
  }

  FakeDevice tiny(kernels::MakeCpuBackend(), {.memory_bytes = 1 << 20});
  CHECK_STATUS(Network::Create(plan, tiny, 10), absl::StatusCode::kResourceExhausted,
               "activations 0, free are 1048576 of 1048576; the largest batch that fits is 0");
  // A batch whose activations are too large for any kernel is refused as well.
  FakeDevice small(kernels::MakeCpuBackend(), {.memory_bytes = 8 << 20});
  CHECK_STATUS(Network::Create(plan, small, 1 << 25), absl::StatusCode::kResourceExhausted,
               absl::StrCat("the largest batch that fits is ", largest));
}

}  // namespace
}  // namespace capstan::worker::device_network_test
