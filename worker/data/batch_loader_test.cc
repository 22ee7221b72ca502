#include "worker/data/batch_loader.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include "common/random/philox.h"
#include "common/testing/status_matchers.h"

namespace capstan::worker::batch_loader_test {
namespace {

// A dataset whose pixels differ enough to show where each came from.
Dataset NoisyDataset(const SampleShape& shape, int64_t count) {
  Dataset dataset;
  dataset.shape = shape;
  dataset.count = count;
  dataset.classes = 10;
  dataset.pixels.resize(static_cast<size_t>(count * shape.count()));
  for (size_t i = 0; i < dataset.pixels.size(); ++i) {
    dataset.pixels[i] = static_cast<uint8_t>(PhiloxWord(5, i) | 1);  // Never 0: 0 is padding.
  }
  for (int64_t i = 0; i < count; ++i) dataset.labels.push_back(static_cast<uint8_t>(i % 10));
  return dataset;
}

struct Batch {
  std::vector<float> images;
  std::vector<int32_t> labels;
};

Batch Load(const Dataset& dataset, const std::vector<uint32_t>& samples, int32_t epoch,
           uint64_t seed, const Augmentation& augmentation, bool training) {
  constexpr float kUntouched = -1e30f;
  Batch batch;
  batch.images.assign(samples.size() * static_cast<size_t>(dataset.shape.count()), kUntouched);
  batch.labels.assign(samples.size(), -1);
  LoadBatch(dataset, samples, epoch, seed, augmentation, training, batch.images.data(),
            batch.labels.data());
  // The bytes, looked up, are the same numbers.
  std::vector<uint8_t> pixels(batch.images.size());
  std::vector<int32_t> labels(samples.size(), -1);
  LoadBatch(dataset, samples, epoch, seed, augmentation, training, pixels.data(), labels.data());
  const auto channels = static_cast<size_t>(dataset.shape.c);
  const std::vector<float> values = PixelValues(augmentation, dataset.shape.c);
  REQUIRE(values.size() == 256 * channels);
  for (size_t i = 0; i < pixels.size(); ++i) {
    REQUIRE(batch.images[i] == values[i % channels * 256 + pixels[i]]);
  }
  CHECK(labels == batch.labels);
  return batch;
}

float Normalised(int pixel, const Augmentation& augmentation, int64_t c) {
  const double mean = augmentation.mean.empty() ? 0.0 : augmentation.mean[static_cast<size_t>(c)];
  const double std = augmentation.std.empty() ? 1.0 : augmentation.std[static_cast<size_t>(c)];
  return static_cast<float>((pixel / 255.0 - mean) / std);
}

// The reference implementation, pixel by pixel: pad, crop, mirror, normalise.
std::vector<float> Reference(const Dataset& dataset, uint32_t sample, int32_t epoch, uint64_t seed,
                             const Augmentation& augmentation) {
  const auto words =
      Philox4x32(MixKey(MixKey(MixKey(seed, 2), static_cast<uint64_t>(epoch)), sample), 0);
  const int64_t p = augmentation.crop_padding;
  const auto positions = static_cast<uint64_t>(2 * p + 1);
  const auto top = static_cast<int64_t>((words[0] * positions) >> 32);
  const auto left = static_cast<int64_t>((words[1] * positions) >> 32);
  const bool mirror = augmentation.horizontal_flip && words[2] >= 0x80000000u;
  const auto [h, w, c] = dataset.shape;
  std::vector<float> image;
  for (int64_t y = 0; y < h; ++y) {
    for (int64_t x = 0; x < w; ++x) {
      for (int64_t channel = 0; channel < c; ++channel) {
        const int64_t from_y = y + top - p;
        const int64_t from_x = (mirror ? w - 1 - x : x) + left - p;
        const bool inside = from_y >= 0 && from_y < h && from_x >= 0 && from_x < w;
        const int64_t at = ((sample * h + from_y) * w + from_x) * c + channel;
        const int pixel = inside ? dataset.pixels[static_cast<size_t>(at)] : 0;
        image.push_back(Normalised(pixel, augmentation, channel));
      }
    }
  }
  return image;
}

TEST_CASE("Batch: pixels are scaled to [0, 1] and labels copied in the order asked for",
          "[worker][data]") {
  Dataset dataset = NoisyDataset({.h = 1, .w = 2, .c = 1}, 3);
  dataset.pixels = {0, 255, 51, 102, 1, 254};
  const Batch batch = Load(dataset, {2, 0, 1, 0}, 0, 1, {}, false);
  CHECK(batch.images == std::vector<float>{1 / 255.0f, 254 / 255.0f, 0, 1, 0.2f, 0.4f, 0, 1});
  CHECK(batch.labels == std::vector<int32_t>{2, 0, 1, 0});
}

TEST_CASE("Batch: mean and standard deviation are those of the channel", "[worker][data]") {
  Dataset dataset = NoisyDataset({.h = 1, .w = 1, .c = 3}, 1);
  dataset.pixels = {0, 51, 255};
  const Augmentation augmentation{.mean = {0.5f, 0.2f, 0.0f}, .std = {0.25f, 1.0f, 4.0f}};
  const Batch batch = Load(dataset, {0}, 0, 1, augmentation, false);
  CHECK(batch.images[0] == -2.0f);
  CHECK(std::abs(batch.images[1]) < 1e-7f);  // 0.2f is not exactly 51 / 255.
  CHECK(batch.images[2] == 0.25f);
}

TEST_CASE("Batch: crop and mirror agree with the specification", "[worker][data]") {
  for (const SampleShape shape :
       {SampleShape{.h = 6, .w = 5, .c = 1}, {.h = 4, .w = 7, .c = 3}, {.h = 1, .w = 1, .c = 2}}) {
    const Dataset dataset = NoisyDataset(shape, 40);
    Augmentation augmentation{.mean = std::vector<float>(static_cast<size_t>(shape.c), 0.3f),
                              .std = std::vector<float>(static_cast<size_t>(shape.c), 0.7f)};
    for (const int32_t padding : {0, 1, 4, 9}) {  // 9 is more than the image's width.
      for (const bool flip : {false, true}) {
        augmentation.crop_padding = padding;
        augmentation.horizontal_flip = flip;
        for (uint32_t sample = 0; sample < 40; ++sample) {
          const Batch batch = Load(dataset, {sample}, 3, 11, augmentation, true);
          REQUIRE(batch.images == Reference(dataset, sample, 3, 11, augmentation));
        }
      }
    }
  }
}

TEST_CASE("Batch: evaluation is not augmented", "[worker][data]") {
  const Dataset dataset = NoisyDataset({.h = 5, .w = 5, .c = 3}, 8);
  const Augmentation augmentation{.crop_padding = 3, .horizontal_flip = true};
  const std::vector<uint32_t> samples = {0, 1, 2, 3, 4, 5, 6, 7};
  CHECK(Load(dataset, samples, 5, 9, augmentation, false).images ==
        Load(dataset, samples, 0, 1, {}, false).images);
}

TEST_CASE("Batch: a sample's augmentation depends on seed, epoch and sample alone",
          "[worker][data]") {
  const Dataset dataset = NoisyDataset({.h = 8, .w = 8, .c = 1}, 64);
  const Augmentation augmentation{.crop_padding = 2, .horizontal_flip = true};
  const size_t image = 64;
  const Batch together = Load(dataset, {7, 8, 9, 10}, 2, 1, augmentation, true);
  const Batch alone = Load(dataset, {9}, 2, 1, augmentation, true);
  CHECK(std::vector<float>(together.images.begin() + 2 * image,
                           together.images.begin() + 3 * image) == alone.images);
  std::vector<uint32_t> all(64);
  for (uint32_t i = 0; i < 64; ++i) all[i] = i;
  const Batch first = Load(dataset, all, 0, 1, augmentation, true);
  CHECK(first.images != Load(dataset, all, 1, 1, augmentation, true).images);
  CHECK(first.images != Load(dataset, all, 0, 2, augmentation, true).images);
}

TEST_CASE("Batch: every crop and both mirrorings occur about equally often", "[worker][data]") {
  // One bright pixel in the middle of 3 x 3: its place in the output identifies the crop.
  Dataset dataset = NoisyDataset({.h = 3, .w = 3, .c = 1}, 1);
  dataset.pixels = {0, 0, 0, 0, 255, 0, 0, 0, 0};
  const Augmentation augmentation{.crop_padding = 1};
  std::map<size_t, int> landed;
  constexpr int kEpochs = 9000;
  for (int32_t epoch = 0; epoch < kEpochs; ++epoch) {
    const Batch batch = Load(dataset, {0}, epoch, 1, augmentation, true);
    for (size_t i = 0; i < 9; ++i) landed[i] += batch.images[i] == 1.0f;
  }
  // Binomial(9000, 1/9): a standard deviation of 30; six of them are allowed.
  for (const auto& [place, count] : landed) CHECK(std::abs(count - 1000) < 180);

  dataset.pixels = {255, 0, 0, 0, 0, 0, 0, 0, 0};
  int mirrored = 0;
  for (int32_t epoch = 0; epoch < kEpochs; ++epoch) {
    mirrored += Load(dataset, {0}, epoch, 1, {.horizontal_flip = true}, true).images[2] == 1.0f;
  }
  CHECK(std::abs(mirrored - kEpochs / 2) < 6 * 48);  // A standard deviation of 47.4.
}

TEST_CASE("Batch: no samples give an empty batch", "[worker][data]") {
  const Dataset dataset = NoisyDataset({.h = 2, .w = 2, .c = 1}, 1);
  CHECK(Load(dataset, {}, 0, 1, {}, true).images.empty());
}

TEST_CASE("Augmentation: defaults, and values checked against the channels", "[worker][data]") {
  v1::Augmentation spec;
  REQUIRE_OK_AND_ASSIGN(const Augmentation defaults, MakeAugmentation(spec, 3));
  CHECK(defaults.mean.empty());
  CHECK(defaults.std.empty());
  CHECK(defaults.crop_padding == 0);
  CHECK_FALSE(defaults.horizontal_flip);

  spec.add_mean(0.5f);
  spec.add_std(0.25f);
  spec.set_crop_padding(4);
  spec.set_horizontal_flip(true);
  REQUIRE_OK_AND_ASSIGN(const Augmentation set, MakeAugmentation(spec, 1));
  CHECK(set.mean == std::vector<float>{0.5f});
  CHECK(set.std == std::vector<float>{0.25f});
  CHECK(set.crop_padding == 4);
  CHECK(set.horizontal_flip);
  CHECK_STATUS(MakeAugmentation(spec, 3), absl::StatusCode::kInvalidArgument,
               "augmentation.mean has 1 values, expected 3");

  spec.set_crop_padding(4000);  // CheckJob compares it with the images' sides.
  REQUIRE_OK(MakeAugmentation(spec, 1));
  spec.set_crop_padding(-1);
  CHECK_STATUS(MakeAugmentation(spec, 1), absl::StatusCode::kInvalidArgument,
               "augmentation.crop_padding is -1, expected at least 0");
  spec.set_std(0, 0.0f);
  CHECK_STATUS(MakeAugmentation(spec, 1), absl::StatusCode::kInvalidArgument,
               "augmentation.std is 0, expected a finite number above 0");
  spec.set_mean(0, std::numeric_limits<float>::quiet_NaN());
  CHECK_STATUS(MakeAugmentation(spec, 1), absl::StatusCode::kInvalidArgument,
               "augmentation.mean is nan, expected a finite number");
}

}  // namespace
}  // namespace capstan::worker::batch_loader_test
