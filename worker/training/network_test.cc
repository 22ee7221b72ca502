#include "worker/training/network.h"

#include <google/protobuf/text_format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "common/model/initial_values.h"
#include "common/model/plan_model.h"
#include "common/model/tables.h"
#include "common/model/zoo.h"
#include "common/random/philox.h"
#include "common/testing/status_matchers.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/reference/reference_backend.h"
#include "proto/job.pb.h"
#include "worker/training/program/build_program.h"
#include "worker/training/program/program.h"
#include "worker/training/testing/small_nets.h"

namespace capstan::worker::network_test {
namespace {

constexpr uint64_t kDropoutKey = 77;
Batch Slice(const ModelPlan& plan, const Batch& batch, int64_t begin, int64_t end) {
  const int64_t count = plan.input.count();
  return {{batch.images.begin() + begin * count, batch.images.begin() + end * count},
          {batch.labels.begin() + begin, batch.labels.begin() + end}};
}

// A network on a backend of its own, with parameters drawn as for a job.
struct Fixture {
  explicit Fixture(const ModelPlan& the_plan, int64_t n, bool cpu = false)
      : plan(the_plan), backend(cpu ? kernels::MakeCpuBackend() : kernels::MakeReferenceBackend()) {
    auto created = Network::Create(plan, *backend, n);
    REQUIRE_OK(created);
    network = std::move(created).value();
    parameters.resize(static_cast<size_t>(plan.parameter_count));
    FillInitialValues(MakeTables(plan)[0], 3, 0, absl::MakeSpan(parameters));
    gradient.assign(parameters.size(), NAN);
    statistics.assign(static_cast<size_t>(plan.statistic_count), NAN);
  }
  BatchResult Train(const Batch& batch, float scale = 1.0f) {
    REQUIRE_OK_AND_ASSIGN(const BatchResult result,
                          network->Train(batch.view(), parameters, scale, kDropoutKey,
                                         absl::MakeSpan(gradient), absl::MakeSpan(statistics)));
    return result;
  }

  ModelPlan plan;
  std::unique_ptr<kernels::Backend> backend;
  std::unique_ptr<Network> network;
  std::vector<float> parameters, gradient, statistics;
};

// The derivative of the loss by parameter `e`, by central differences.
double Slope(Fixture& f, const Batch& batch, int64_t e, float step) {
  std::vector<float> gradient(f.gradient.size()), statistics(f.statistics.size());
  const auto loss = [&](float value) {
    std::vector<float> moved = f.parameters;
    moved[e] = value;
    auto result = f.network->Train(batch.view(), moved, 1.0f, kDropoutKey, absl::MakeSpan(gradient),
                                   absl::MakeSpan(statistics));
    REQUIRE_OK(result);
    return result->loss_sum;
  };
  const float up = f.parameters[e] + step, down = f.parameters[e] - step;
  return (loss(up) - loss(down)) / (static_cast<double>(up) - down);
}

// Losses are fp32 sums of about 10 with an error of about 1e-6: a step of 2e-3 turns that into
// 5e-4, and the cubic term of the loss adds up to 1e-3 where batch norm bends it. Where two steps
// disagree there is a kink of ReLU or max pooling nearby; such elements are left out, and must be
// few.
void CheckGradient(const ModelPlan& plan, const Batch& batch) {
  Fixture f(plan, batch.view().n());
  const float scale = 0.25f;
  f.Train(batch, scale);
  const std::vector<float> gradient = f.gradient;
  int checked = 0, left_out = 0;
  for (const PlannedTensor& tensor : plan.parameters) {
    const int64_t stride = std::max<int64_t>(1, tensor.count / 10);
    for (int64_t e = tensor.offset; e < tensor.offset + tensor.count; e += stride) {
      const double slope = Slope(f, batch, e, 2e-3f);
      if (std::abs(slope - Slope(f, batch, e, 4e-3f)) > 1.5e-3 + 0.005 * std::abs(slope)) {
        ++left_out;
        continue;
      }
      INFO(tensor.name << " element " << e - tensor.offset);
      CHECK(gradient[e] / scale == Approx(slope).epsilon(0.01).margin(5e-3));
      ++checked;
    }
  }
  INFO(checked << " checked, " << left_out << " left out");
  CHECK(left_out * 3 < checked);
}

TEST_CASE("Network: gradients are the loss's slopes for every kind of layer",
          "[worker][training]") {
  for (const SmallNet& net : kSmallNets) {
    INFO(net.name);
    const ModelPlan plan = PlanSmallNet(net.text, net.input);
    CheckGradient(plan, RandomBatch(plan, 6));
  }
}

TEST_CASE("Network: the gradient of an embedding is the loss's slope", "[worker][training]") {
  const ModelPlan plan = PlanSmallNet(R"(
    layers { name: "e" embedding { rows: 11 dim: 3 } }
    layers { name: "f" fully_connected { units: 5 } })",
                                      {1, 1, 4});
  Batch batch = RandomBatch(plan, 3);
  for (size_t i = 0; i < batch.images.size(); ++i) {
    batch.images[i] = static_cast<float>(PhiloxWord(8, i) % 11);
  }
  CheckGradient(plan, batch);
}

TEST_CASE("Network: gradients through RMS normalisation are the loss's slopes",
          "[worker][training]") {
  const ModelPlan plan = PlanSmallNet(R"(
    layers { name: "c" convolution { filters: 5 kernel: 2 } }
    layers { name: "n" rms_normalization { epsilon: 0.01 } }
    layers { name: "u" gelu {} }
    layers { name: "s" inputs: "u" inputs: "c" add {} }
    layers { name: "m" rms_normalization {} }
    layers { name: "f" fully_connected { units: 5 } })",
                                      {4, 3, 2});
  CheckGradient(plan, RandomBatch(plan, 6));
}

// Compares fp32 sums in different orders, relative to the largest element of the tensor.
void CheckClose(const ModelPlan& plan, const std::vector<float>& a, const std::vector<float>& b,
                double tolerance) {
  for (const PlannedTensor& tensor : plan.parameters) {
    double largest = 0, difference = 0;
    for (int64_t e = tensor.offset; e < tensor.offset + tensor.count; ++e) {
      largest = std::max(largest, std::abs(static_cast<double>(a[e])));
      difference = std::max(difference, std::abs(static_cast<double>(a[e]) - b[e]));
    }
    INFO(tensor.name);
    CHECK(difference <= tolerance * largest + 1e-6);
  }
}

TEST_CASE("Network: the CPU backend's gradients are the reference's", "[worker][training]") {
  for (const SmallNet& net : kSmallNets) {
    INFO(net.name);
    const ModelPlan plan = PlanSmallNet(net.text, net.input);
    const Batch batch = RandomBatch(plan, 6);
    Fixture reference(plan, 6), cpu(plan, 6, /*cpu=*/true);
    const BatchResult expected = reference.Train(batch), result = cpu.Train(batch);
    CHECK(result.loss_sum == Approx(expected.loss_sum).epsilon(1e-5));
    CHECK(result.correct == expected.correct);
    CheckClose(plan, reference.gradient, cpu.gradient, 2e-4);
    for (size_t i = 0; i < cpu.statistics.size(); ++i) {
      CHECK(cpu.statistics[i] == Approx(reference.statistics[i]).epsilon(1e-4).margin(1e-5));
    }
  }
}

// The model with a step that changes nothing behind each batch norm, so that nothing can be fused.
v1::Model Unfused(v1::Model model) {
  v1::Model unfused;
  for (v1::Layer& layer : *model.mutable_layers()) {
    *unfused.add_layers() = layer;
    if (!layer.has_batch_normalization()) continue;
    v1::Layer& identity = *unfused.add_layers();
    identity.set_name(layer.name() + "_itself");
    identity.mutable_max_pooling()->set_kernel(1);
    for (v1::Layer& reader : *model.mutable_layers()) {
      for (std::string& input : *reader.mutable_inputs()) {
        if (input == layer.name()) input = identity.name();
      }
    }
  }
  return unfused;
}

// A program's batch norms with only a ReLU fused into them, and those with a sum as well.
struct FusedNorms {
  int relu = 0, addend = 0;
};
FusedNorms CountFused(const ModelPlan& plan) {
  REQUIRE_OK_AND_ASSIGN(const Program program, BuildProgram(plan, 2, ProgramKind::kTraining));
  FusedNorms count;
  for (const Step& step : program.forward) {
    if (step.desc.kind != kernels::OpKind::kBatchNormForward || !step.desc.fuse_relu) continue;
    ++(step.desc.has_addend ? count.addend : count.relu);
  }
  return count;
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * 4) == 0);
}

// Compares a few steps of both on the CPU backend, and an evaluation after each.
void CheckSameBits(const ModelPlan& plan, const ModelPlan& plain, int64_t n) {
  Fixture fused(plan, n, /*cpu=*/true), unfused(plain, n, /*cpu=*/true);
  for (uint64_t seed = 0; seed < 4; ++seed) {
    const Batch batch = RandomBatch(plan, n, seed);
    unfused.parameters = fused.parameters;
    const BatchResult result = fused.Train(batch), expected = unfused.Train(batch);
    CHECK(result.loss_sum == expected.loss_sum);  // This also fails for NaN.
    CHECK(SameBits(fused.gradient, unfused.gradient));
    CHECK(SameBits(fused.statistics, unfused.statistics));
    REQUIRE_OK_AND_ASSIGN(
        const BatchResult evaluated,
        fused.network->Evaluate(batch.view(), fused.parameters, fused.statistics));
    REQUIRE_OK_AND_ASSIGN(
        const BatchResult plainly,
        unfused.network->Evaluate(batch.view(), fused.parameters, fused.statistics));
    CHECK(evaluated.loss_sum == plainly.loss_sum);
    for (size_t e = 0; e < fused.parameters.size(); ++e) {
      fused.parameters[e] -= 0.02f * fused.gradient[e];
    }
  }
}

// Returns the fused batch norms of `model`.
FusedNorms CheckSameBitsUnfused(const v1::Model& model, SampleShape input, int64_t n) {
  REQUIRE_OK_AND_ASSIGN(const ModelPlan plan, PlanModel(model, input, kSmallNetClasses));
  REQUIRE_OK_AND_ASSIGN(const ModelPlan plain, PlanModel(Unfused(model), input, kSmallNetClasses));
  const FusedNorms left = CountFused(plain);
  CHECK(left.relu + left.addend == 0);
  CheckSameBits(plan, plain, n);
  return CountFused(plan);
}

TEST_CASE("Network: batch norm that takes sums and ReLU along computes the same bits",
          "[worker][training]") {
  FusedNorms total;
  for (const SmallNet& net : kSmallNets) {
    INFO(net.name);
    v1::Model model;
    REQUIRE(google::protobuf::TextFormat::ParseFromString(net.text, &model));
    const FusedNorms count = CheckSameBitsUnfused(model, net.input, 6);
    total.relu += count.relu;
    total.addend += count.addend;
  }
  CHECK(total.relu > 0);
  CHECK(total.addend > 0);
}

// program_test cannot see a step that wrongly works in place, because the buffer's name is the
// same.
TEST_CASE("Network: a residual network's fused batch norms compute the same bits",
          "[worker][training]") {
  constexpr SampleShape kInput = {8, 8, 3};
  REQUIRE_OK_AND_ASSIGN(const std::vector<v1::Layer> layers,
                        ExpandZoo("resnet20", kInput, kSmallNetClasses));
  v1::Model model;
  for (const v1::Layer& layer : layers) *model.add_layers() = layer;
  const FusedNorms count = CheckSameBitsUnfused(model, kInput, 2);
  CHECK(count.relu == 10);
  CHECK(count.addend == 9);
}

TEST_CASE("Network: a batch's gradient is the sum of its parts', whatever their sizes",
          "[worker][training]") {
  const ModelPlan plan = PlanSmallNet(kSmallNets[1].text, kSmallNets[1].input);
  const Batch batch = RandomBatch(plan, 7);
  Fixture whole(plan, 7);
  const BatchResult expected = whole.Train(batch, 0.125f);
  Fixture parts(plan, 7);
  std::vector<float> sum(whole.gradient.size(), 0.0f);
  double loss_sum = 0;
  int64_t correct = 0;
  for (const auto& [begin, end] : {std::pair(0, 1), std::pair(1, 5), std::pair(5, 7)}) {
    const BatchResult result = parts.Train(Slice(plan, batch, begin, end), 0.125f);
    loss_sum += result.loss_sum;
    correct += result.correct;
    for (size_t e = 0; e < sum.size(); ++e) sum[e] += parts.gradient[e];
  }
  CHECK(loss_sum == Approx(expected.loss_sum).epsilon(1e-6));
  CHECK(correct == expected.correct);
  CheckClose(plan, whole.gradient, sum, 1e-5);
}

TEST_CASE("Network: a part that is told to be ready is final, and its parameters are done with",
          "[worker][training]") {
  for (const SmallNet& net : kSmallNets) {
    INFO(net.name);
    const ModelPlan plan = PlanSmallNet(net.text, net.input);
    const Batch batch = RandomBatch(plan, 6);
    for (const bool cpu : {false, true}) {
      Fixture whole(plan, 6, cpu), parts(plan, 6, cpu);
      whole.Train(batch);
      int64_t told = plan.parameter_count;
      std::vector<float> early(parts.gradient.size(), NAN);
      const GradientReady ready = [&](int64_t first) {
        REQUIRE(first < told);
        REQUIRE(first > 0);
        std::copy(parts.gradient.begin() + first, parts.gradient.begin() + told,
                  early.begin() + first);
        // Overwrites them as the next iteration's parameters would.
        std::fill(parts.parameters.begin() + first, parts.parameters.begin() + told, NAN);
        told = first;
      };
      REQUIRE_OK(parts.network->Train(batch.view(), parts.parameters, 1.0f, kDropoutKey,
                                      absl::MakeSpan(parts.gradient),
                                      absl::MakeSpan(parts.statistics), ready));
      CHECK(parts.gradient == whole.gradient);
      CHECK(std::equal(early.begin() + told, early.end(), whole.gradient.begin() + told));
    }
  }
}

TEST_CASE("Network: what ran before leaves no trace, also beyond the programs it keeps",
          "[worker][training]") {
  const ModelPlan plan = PlanSmallNet(kSmallNets[2].text, kSmallNets[2].input);
  const Batch batch = RandomBatch(plan, 12);
  Fixture fresh(plan, 12), used(plan, 12);
  fresh.Train(Slice(plan, batch, 0, 4));
  for (int64_t n = 1; n <= 12; ++n) {
    used.Train(Slice(plan, batch, 0, n));
    const std::vector<float> statistics(used.statistics.size(), 0.5f);
    REQUIRE_OK(
        used.network->Evaluate(Slice(plan, batch, 0, n).view(), used.parameters, statistics));
  }
  used.Train(Slice(plan, batch, 0, 4));
  CHECK(used.gradient == fresh.gradient);
  CHECK(used.statistics == fresh.statistics);
}

TEST_CASE("Network: statistics are the batch's means and unbiased variances",
          "[worker][training]") {
  const ModelPlan plan = PlanSmallNet(kSmallNets[5].text, {3, 3, 2});
  const Batch batch = RandomBatch(plan, 4);
  Fixture f(plan, 4);
  f.Train(batch);
  for (int64_t c = 0; c < 2; ++c) {
    double sum = 0, squares = 0;
    for (int64_t i = c; i < 4 * 18; i += 2) sum += batch.images[i];
    for (int64_t i = c; i < 4 * 18; i += 2) squares += std::pow(batch.images[i] - sum / 36, 2);
    CHECK(f.statistics[c] == Approx(sum / 36));
    CHECK(f.statistics[2 + c] == Approx(squares / 35));
  }
  f.Train(Slice(plan, RandomBatch(plan, 4), 0, 1));
  CHECK(f.statistics[4 + 6] == 0.0f);  // One value has no variance, and no division by zero.
}

TEST_CASE("Network: evaluation uses running statistics and drops nothing", "[worker][training]") {
  SECTION("batch normalisation with the batch's own moments gives the training loss") {
    const ModelPlan plan = PlanSmallNet(kSmallNets[5].text, {3, 3, 2});
    const Batch batch = RandomBatch(plan, 6);
    Fixture f(plan, 6);
    const BatchResult trained = f.Train(batch);
    std::vector<float> biased = f.statistics;
    for (int c = 2; c < 4; ++c) biased[c] *= 53.0f / 54.0f;
    for (int c = 10; c < 16; ++c) biased[c] *= 5.0f / 6.0f;
    REQUIRE_OK_AND_ASSIGN(const BatchResult evaluated,
                          f.network->Evaluate(batch.view(), f.parameters, biased));
    CHECK(evaluated.loss_sum == Approx(trained.loss_sum).epsilon(1e-5));
    CHECK(evaluated.correct == trained.correct);
    const std::vector<float> other(biased.size(), 3.0f);
    REQUIRE_OK_AND_ASSIGN(const BatchResult shifted,
                          f.network->Evaluate(batch.view(), f.parameters, other));
    CHECK(shifted.loss_sum != Approx(trained.loss_sum).epsilon(1e-3));
  }
  SECTION("dropout") {
    const ModelPlan with = PlanSmallNet(kSmallNets[4].text, {4, 4, 2});
    const Batch batch = RandomBatch(with, 6);
    Fixture f(with, 6);
    const BatchResult trained = f.Train(batch);
    REQUIRE_OK_AND_ASSIGN(const BatchResult evaluated,
                          f.network->Evaluate(batch.view(), f.parameters, {}));
    CHECK(evaluated.loss_sum != Approx(trained.loss_sum).epsilon(1e-4));
  }
  SECTION("otherwise the loss is that of training") {
    const ModelPlan plan = PlanSmallNet(kSmallNets[0].text, kSmallNets[0].input);
    const Batch batch = RandomBatch(plan, 6);
    Fixture f(plan, 6);
    const BatchResult trained = f.Train(batch);
    REQUIRE_OK_AND_ASSIGN(const BatchResult evaluated,
                          f.network->Evaluate(batch.view(), f.parameters, {}));
    CHECK(evaluated.loss_sum == trained.loss_sum);
    CHECK(evaluated.correct == trained.correct);
  }
}

TEST_CASE("Network: loss and hits of an evaluation are those of its logits", "[worker][training]") {
  const ModelPlan plan = PlanSmallNet(kSmallNets[0].text, kSmallNets[0].input);
  const Batch batch = RandomBatch(plan, 6);
  Fixture f(plan, 6);
  f.Train(RandomBatch(plan, 3, 11));
  REQUIRE_OK_AND_ASSIGN(const BatchResult evaluated,
                        f.network->Evaluate(batch.view(), f.parameters, {}));
  std::vector<float> logits = {8.0f};
  f.network->AppendLogits(&logits);
  REQUIRE(logits.size() == 1 + 6 * kSmallNetClasses);
  CHECK(logits[0] == 8.0f);
  double loss = 0;
  int64_t correct = 0;
  for (size_t i = 0; i < 6; ++i) {
    const auto first = logits.begin() + 1 + static_cast<ptrdiff_t>(i * kSmallNetClasses);
    const auto label = static_cast<ptrdiff_t>(batch.labels[i]);
    double sum = 0;
    for (auto z = first; z != first + kSmallNetClasses; ++z) sum += std::exp(double{*z});
    loss += std::log(sum) - double{first[label]};
    if (std::max_element(first, first + kSmallNetClasses) == first + label) ++correct;
  }
  CHECK(evaluated.loss_sum == Approx(loss).epsilon(1e-6));
  CHECK(evaluated.correct == correct);
}

TEST_CASE("Network: what does not fit is refused", "[worker][training]") {
  const ModelPlan plan = PlanSmallNet(kSmallNets[0].text, kSmallNets[0].input);
  Fixture f(plan, 4);
  const auto train = [&f](const Batch& batch, size_t parameters) {
    return f.network->Train(batch.view(), absl::MakeConstSpan(f.parameters.data(), parameters), 1,
                            0, absl::MakeSpan(f.gradient), {});
  };
  const size_t all = f.parameters.size();
  const auto code = absl::StatusCode::kInvalidArgument;
  CHECK_STATUS(train(RandomBatch(plan, 5), all), code, "a batch of 5 samples, expected 1 to 4");
  CHECK_STATUS(train({}, all), code, "a batch of 0 samples");
  CHECK_STATUS(train(RandomBatch(plan, 2), all - 1), code, "parameters has");
  Batch bad = RandomBatch(plan, 2);
  bad.images.pop_back();
  CHECK_STATUS(train(bad, all), code, "images has 167 elements, expected 168");
  bad = RandomBatch(plan, 2);
  bad.labels[1] = 5;
  CHECK_STATUS(train(bad, all), code, "label 1 is 5");
  CHECK_STATUS(Network::Create(plan, *f.backend, 0), code, "batch_size_max is 0");
}

// A reference backend that has no memory left.
class FullBackend final : public kernels::Backend {
 public:
  std::string Name() const override { return "full"; }
  bool Supports(const kernels::OpDesc& desc) const override { return inner_->Supports(desc); }
  absl::StatusOr<std::unique_ptr<kernels::Plan>> Prepare(const kernels::OpDesc& desc) override {
    return inner_->Prepare(desc);
  }
  absl::Status Run(kernels::Plan&, absl::Span<const kernels::TensorView>,
                   absl::Span<const kernels::TensorView>, const kernels::RunOptions&) override {
    return absl::OkStatus();
  }
  void* Allocate(int64_t) override { return nullptr; }
  void Free(void*) override {}
  absl::Status Copy(void*, const void*, int64_t) override { return absl::OkStatus(); }
  absl::Status Synchronize() override { return absl::OkStatus(); }

 private:
  std::unique_ptr<kernels::Backend> inner_ = kernels::MakeReferenceBackend();
};

TEST_CASE("Network: activations that do not fit say how much they need", "[worker][training]") {
  const ModelPlan plan = PlanSmallNet(kSmallNets[0].text, kSmallNets[0].input);
  FullBackend backend;
  REQUIRE_OK_AND_ASSIGN(const auto network, Network::Create(plan, backend, 4));
  const std::vector<float> parameters(static_cast<size_t>(plan.parameter_count));
  CHECK_STATUS(network->Evaluate(RandomBatch(plan, 4).view(), parameters, {}),
               absl::StatusCode::kResourceExhausted,
               "no memory for the activations of a batch of 4: they need");
}

}  // namespace
}  // namespace capstan::worker::network_test
