#include "worker/training/trainer/trainer.h"

#include <google/protobuf/text_format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/data/testing/test_files.h"
#include "common/model/initial_values.h"
#include "common/model/tables.h"
#include "common/testing/status_matchers.h"
#include "common/wire/number_format.h"
#include "kernels/backend_group.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/testing/fake_device.h"
#include "proto/job.pb.h"

namespace capstan::worker::trainer_test {
namespace {

constexpr int kTrainCount = 30;
constexpr int kTestCount = 600;  // More than two evaluation batches.

testing::Bytes Labels(int count) {
  testing::Bytes labels;
  for (int i = 0; i < count; ++i) labels.push_back(static_cast<uint8_t>(i * 7 % 10));
  return labels;
}

// A job over noisy 8x8 images, with batch normalisation and dropout.
struct Fixture {
  Fixture() {
    v1::Data& data = *job.mutable_data();
    data.set_format(v1::Data::IDX);
    SetSplit("train", kTrainCount, 8, data.mutable_train());
    SetSplit("test", kTestCount, 8, data.mutable_test());
    data.mutable_augmentation()->set_crop_padding(1);
    REQUIRE(google::protobuf::TextFormat::ParseFromString(
        R"(layers { name: "c" convolution { filters: 4 kernel: 3 } }
           layers { name: "n" batch_normalization {} }
           layers { name: "d" dropout { rate: 0.3 } }
           layers { name: "f" fully_connected { units: 10 } })",
        job.mutable_model()));
    job.mutable_training()->set_batch_size(8);
    job.mutable_training()->set_seed(3);
  }
  void SetSplit(const std::string& name, int count, int side, v1::Split* split) {
    const auto size = static_cast<uint32_t>(side);
    split->set_images(folder.Write(
        name + "-images", testing::IdxImagesFile(static_cast<uint32_t>(count), size, size)));
    split->set_labels(folder.Write(name + "-labels", testing::IdxLabelsFile(Labels(count))));
  }
  // Makes a trainer on a fake device.
  std::unique_ptr<Trainer> CreateOn(kernels::DataType tensors, const ExchangeFormats& formats) {
    auto device = std::make_unique<kernels::FakeDevice>(
        kernels::MakeCpuBackend(), kernels::FakeDevice::Options{.tensor_type = tensors});
    auto trainer = Trainer::Create(job, kernels::BackendGroup(std::move(device)), nullptr, formats);
    REQUIRE_OK(trainer);
    return *std::move(trainer);
  }
  std::unique_ptr<Trainer> Create() {
    absl::StatusOr<std::unique_ptr<Trainer>> trainer = Trainer::Create(job);
    REQUIRE_OK(trainer);
    return *std::move(trainer);
  }

  testing::TemporaryFolder folder;
  v1::JobSpec job;
};

Trainer::Tables InitialTables(const ModelPlan& plan) {
  Trainer::Tables tables = MakeTrainerTables(plan);
  const std::vector<v1::TableSpec> specs = MakeTables(plan);
  for (size_t t = 0; t < specs.size(); ++t) {
    FillInitialValues(specs[t], 3, 0, absl::MakeSpan(tables[t]));
  }
  return tables;
}

Trainer::Tables TrainOne(Trainer& trainer, const MicroBatch& batch,
                         absl::Span<const MicroBatch> ahead = {}) {
  Trainer::Tables gradient = MakeTrainerTables(trainer.plan());
  REQUIRE_OK(trainer.Train(batch, InitialTables(trainer.plan()), &gradient, ahead));
  return gradient;
}

TEST_CASE("Trainer: a micro-batch's gradient depends on job, epoch and positions alone",
          "[worker][training]") {
  Fixture f;
  const auto first = f.Create(), second = f.Create();
  CHECK(first->train_samples() == kTrainCount);
  CHECK(first->test_samples() == kTestCount);
  const MicroBatch a{Epoch(0), {0, 8}, 16}, b{Epoch(0), {8, 16}, 16}, c{Epoch(1), {24, 30}, 6};
  const Trainer::Tables gradient_a = TrainOne(*first, a, {b, c});
  const Trainer::Tables gradient_b = TrainOne(*first, b, {c});
  const Trainer::Tables gradient_c = TrainOne(*first, c);
  // `second` stands for another process, with another order and other plans ahead.
  CHECK(TrainOne(*second, c, {a, a}) == gradient_c);
  CHECK(TrainOne(*second, b) == gradient_b);
  CHECK(TrainOne(*second, a) == gradient_a);
  CHECK(gradient_a != gradient_b);
  CHECK(TrainOne(*second, {Epoch(1), {0, 8}, 16}) != gradient_a);
  f.job.mutable_training()->set_seed(4);
  CHECK(TrainOne(*f.Create(), a) != gradient_a);
}

TEST_CASE("Trainer: an empty slot contributes zeros, also between others", "[worker][training]") {
  Fixture f;
  const auto trainer = f.Create();
  const MicroBatch empty{Epoch(0), {30, 30}, 6};
  CHECK(TrainOne(*trainer, empty, {{Epoch(1), {0, 8}, 8}}) == MakeTrainerTables(trainer->plan()));
}

TEST_CASE("Trainer: evaluation adds up over any ranges, in batches of its own",
          "[worker][training]") {
  Fixture f;
  const auto trainer = f.Create();
  const Trainer::Tables tables = InitialTables(trainer->plan());
  REQUIRE_OK_AND_ASSIGN(const BatchResult whole, trainer->Evaluate({0, kTestCount}, tables));
  REQUIRE_OK_AND_ASSIGN(const BatchResult left, trainer->Evaluate({0, 333}, tables));
  REQUIRE_OK_AND_ASSIGN(const BatchResult right, trainer->Evaluate({333, kTestCount}, tables));
  CHECK(whole.correct == left.correct + right.correct);
  CHECK(whole.loss_sum == Approx(left.loss_sum + right.loss_sum).epsilon(1e-9));
  CHECK(whole.loss_sum / kTestCount > 1.5);  // An untrained model has about ln 10.
  CHECK_STATUS(trainer->Evaluate({0, kTestCount + 1}, tables), absl::StatusCode::kInvalidArgument,
               "evaluation of test samples [0, 601), expected a part of [0, 600)");
}

TEST_CASE("Trainer: positions beyond the data and tables of another model are refused",
          "[worker][training]") {
  Fixture f;
  const auto trainer = f.Create();
  const Trainer::Tables tables = InitialTables(trainer->plan());
  Trainer::Tables gradient = MakeTrainerTables(trainer->plan());
  const auto code = absl::StatusCode::kInvalidArgument;
  CHECK_STATUS(trainer->Train({Epoch(0), {24, 32}, 8}, tables, &gradient), code, "32");
  CHECK_STATUS(trainer->Train({Epoch(0), {0, 8}, 8}, {}, &gradient), code, "0 tables, expected 2");
}

TEST_CASE("Trainer: data that does not fit is named", "[worker][training]") {
  Fixture f;
  SECTION("test images of another size") {
    f.SetSplit("other", 3, 9, f.job.mutable_data()->mutable_test());
    CHECK_STATUS(Trainer::Create(f.job), absl::StatusCode::kInvalidArgument,
                 "data.test: its images are 9x9x1, expected 8x8x1");
  }
  SECTION("another number of images than the scheduler counted") {
    v1::Data& data = *f.job.mutable_data();
    data.mutable_train()->add_block_examples(kTrainCount);
    data.mutable_test()->add_block_examples(kTestCount);
    CHECK(f.Create()->train_samples() == kTrainCount);
    data.mutable_test()->set_block_examples(0, kTestCount - 1);
    CHECK_STATUS(Trainer::Create(f.job), absl::StatusCode::kDataLoss,
                 "data.test: 600 images, expected 599, as when the job was submitted");
    data.mutable_train()->set_block_examples(0, kTrainCount + 1);
    CHECK_STATUS(Trainer::Create(f.job), absl::StatusCode::kDataLoss,
                 "data.train: 30 images, expected 31, as when the job was submitted");
  }
  SECTION("no test images at all") {
    f.job.mutable_data()->clear_test();
    CHECK(f.Create()->test_samples() == 0);
  }
  SECTION("missing file") {
    f.job.mutable_data()->mutable_train()->set_images(f.folder.Path("none"));
    CHECK_STATUS(Trainer::Create(f.job), absl::StatusCode::kNotFound, "none");
  }
}

TEST_CASE("Trainer: a device gives gradients as servers take them, but not before they are scaled",
          "[worker][training]") {
  const MicroBatch batch = {.positions = {0, 8}, .gradient_samples = 8};
  const ExchangeFormats halves = {.gradients = NumberFormat::kBf16};
  using kernels::DataType;
  Fixture f;
  const Trainer::Tables exact = TrainOne(*f.CreateOn(DataType::kFloat32, {}), batch);
  std::vector<uint16_t> rounded(exact[0].size()), came(exact[0].size());
  std::vector<float> statistics(exact[1].size());
  EncodeNumbers(halves.gradients, exact[0], reinterpret_cast<char*>(rounded.data()));
  const auto trainer = f.CreateOn(DataType::kFloat32, halves);
  CHECK(trainer->exchanges().gradients == NumberFormat::kBf16);
  REQUIRE_OK(trainer->Forward(batch, InitialTables(trainer->plan())[0]));
  REQUIRE_OK(trainer->Backward(GradientView(absl::MakeSpan(came)), absl::MakeSpan(statistics)));
  CHECK(came == rounded);
  CHECK(statistics == exact[1]);
  CHECK(f.Create()->exchanges().gradients == NumberFormat::kFp32);  // The CPU exchanges fp32.
  // If the loss is scaled, or clipped below, the gradient is exchanged as fp32.
  CHECK(TrainOne(*f.CreateOn(DataType::kFloat16, halves), batch) ==
        TrainOne(*f.CreateOn(DataType::kFloat16, {}), batch));
  f.job.mutable_optimizer()->set_clip_norm(0.01f);
  CHECK(TrainOne(*f.CreateOn(DataType::kFloat32, halves), batch) ==
        TrainOne(*f.CreateOn(DataType::kFloat32, {}), batch));
}

}  // namespace
}  // namespace capstan::worker::trainer_test
