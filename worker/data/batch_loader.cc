#include "worker/data/batch_loader.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstddef>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/random/philox.h"

namespace capstan::worker {
namespace {

constexpr uint64_t kAugmentationStream = 2;

// The crop of an augmented image: output (y, x) is the input at (y + row, x + column), before
// mirroring; positions outside the input are padding.
struct Crop {
  int64_t row = 0;
  int64_t column = 0;
  bool mirror = false;
};

Crop DrawCrop(const Augmentation& augmentation, uint64_t key) {
  const auto words = Philox4x32(key, 0);
  const uint64_t positions = 2 * static_cast<uint64_t>(augmentation.crop_padding) + 1;
  const auto draw = [positions](uint32_t word) {
    return static_cast<int64_t>((word * positions) >> 32);
  };
  return {.row = draw(words[0]) - augmentation.crop_padding,
          .column = draw(words[1]) - augmentation.crop_padding,
          .mirror = augmentation.horizontal_flip && (words[2] >> 31) != 0};
}

// Converts a batch's pixels to numbers.
class ToNumbers {
 public:
  using Value = float;
  ToNumbers(const Augmentation& augmentation, int64_t channels)
      : channels_(channels), values_(PixelValues(augmentation, channels)) {}

  // Looks up each byte of `count` pixels in its channel's values.
  void Convert(const uint8_t* pixels, int64_t count, float* to) const {
    if (channels_ == 1) {
      for (int64_t i = 0; i < count; ++i) to[i] = values_[pixels[i]];
      return;
    }
    for (int64_t i = 0; i < count; ++i, pixels += channels_, to += channels_) {
      for (int64_t c = 0; c < channels_; ++c) to[c] = ValueOf(c, pixels[c]);
    }
  }
  void FillPadding(int64_t count, float* to) const {
    for (int64_t i = 0; i < count; ++i) {
      for (int64_t c = 0; c < channels_; ++c) *to++ = ValueOf(c, 0);
    }
  }

 private:
  float ValueOf(int64_t channel, uint8_t pixel) const {
    return values_[static_cast<size_t>(channel * 256 + pixel)];
  }
  const int64_t channels_;
  const std::vector<float> values_;
};

// Copies a batch's pixels as bytes.
class ToBytes {
 public:
  using Value = uint8_t;
  explicit ToBytes(int64_t channels) : channels_(channels) {}
  void Convert(const uint8_t* pixels, int64_t count, uint8_t* to) const {
    std::copy_n(pixels, count * channels_, to);
  }
  void FillPadding(int64_t count, uint8_t* to) const {
    std::fill_n(to, count * channels_, uint8_t{0});
  }

 private:
  const int64_t channels_;
};

template <typename Value>
void MirrorRow(int64_t w, int64_t channels, Value* row) {
  for (int64_t left = 0, right = w - 1; left < right; ++left, --right) {
    std::swap_ranges(row + left * channels, row + (left + 1) * channels, row + right * channels);
  }
}

template <class To>
void ConvertCropped(const uint8_t* image, const SampleShape& shape, const Crop& crop, const To& to,
                    typename To::Value* values) {
  const int64_t row_count = shape.w * shape.c;
  // Columns [begin, end) of the output have a pixel in the input.
  const int64_t begin = std::clamp<int64_t>(-crop.column, 0, shape.w);
  const int64_t end = std::clamp<int64_t>(shape.w - crop.column, begin, shape.w);
  for (int64_t y = 0; y < shape.h; ++y, values += row_count) {
    const int64_t row = y + crop.row;
    if (row < 0 || row >= shape.h) {
      to.FillPadding(shape.w, values);
      continue;
    }
    to.FillPadding(begin, values);
    if (end > begin) {
      const uint8_t* pixels = image + row * row_count + (begin + crop.column) * shape.c;
      to.Convert(pixels, end - begin, values + begin * shape.c);
    }
    to.FillPadding(shape.w - end, values + end * shape.c);
    if (crop.mirror) MirrorRow(shape.w, shape.c, values);
  }
}

template <class To>
void Load(const Dataset& dataset, absl::Span<const uint32_t> samples, int32_t epoch, uint64_t seed,
          const Augmentation& augmentation, bool training, const To& to, typename To::Value* images,
          int32_t* labels) {
  const SampleShape& shape = dataset.shape;
  const bool augmented =
      training && (augmentation.crop_padding > 0 || augmentation.horizontal_flip);
  const uint64_t epoch_key =
      MixKey(MixKey(seed, kAugmentationStream), static_cast<uint64_t>(epoch));
  for (size_t i = 0; i < samples.size(); ++i, images += shape.count()) {
    const uint32_t sample = samples[i];
    assert(sample < dataset.count);
    const uint8_t* image = dataset.pixels.data() + int64_t{sample} * shape.count();
    labels[i] = dataset.labels.empty() ? 0 : dataset.labels[sample];
    if (augmented) {
      const Crop crop = DrawCrop(augmentation, MixKey(epoch_key, sample));
      ConvertCropped(image, shape, crop, to, images);
    } else {
      to.Convert(image, shape.h * shape.w, images);
    }
  }
}

absl::Status CheckChannelValues(const char* field, int count, int64_t channels) {
  if (count == 0 || count == channels) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("augmentation.", field, " has ", count,
                                                 " values, expected ", channels,
                                                 " (one a channel) or none"));
}

}  // namespace

absl::StatusOr<Augmentation> MakeAugmentation(const v1::Augmentation& spec, int64_t channels) {
  if (const auto status = CheckChannelValues("mean", spec.mean_size(), channels); !status.ok()) {
    return status;
  }
  if (const auto status = CheckChannelValues("std", spec.std_size(), channels); !status.ok()) {
    return status;
  }
  for (const float mean : spec.mean()) {
    if (!std::isfinite(mean)) {
      return absl::InvalidArgumentError(
          absl::StrCat("augmentation.mean is ", mean, ", expected a finite number"));
    }
  }
  for (const float std : spec.std()) {
    if (!std::isfinite(std) || std <= 0.0f) {
      return absl::InvalidArgumentError(
          absl::StrCat("augmentation.std is ", std, ", expected a finite number above 0"));
    }
  }
  if (spec.crop_padding() < 0) {
    return absl::InvalidArgumentError(absl::StrCat("augmentation.crop_padding is ",
                                                   spec.crop_padding(), ", expected at least 0"));
  }
  Augmentation augmentation;
  augmentation.mean.assign(spec.mean().begin(), spec.mean().end());
  augmentation.std.assign(spec.std().begin(), spec.std().end());
  augmentation.crop_padding = spec.crop_padding();
  augmentation.horizontal_flip = spec.horizontal_flip();
  return augmentation;
}

std::vector<float> PixelValues(const Augmentation& augmentation, int64_t channels) {
  std::vector<float> values;
  for (size_t c = 0; c < static_cast<size_t>(channels); ++c) {
    const double mean = augmentation.mean.empty() ? 0.0 : augmentation.mean[c];
    const double std = augmentation.std.empty() ? 1.0 : augmentation.std[c];
    for (int p = 0; p < 256; ++p) {
      values.push_back(static_cast<float>((static_cast<double>(p) / 255.0 - mean) / std));
    }
  }
  return values;
}

void LoadBatch(const Dataset& dataset, absl::Span<const uint32_t> samples, int32_t epoch,
               uint64_t seed, const Augmentation& augmentation, bool training, float* images,
               int32_t* labels) {
  Load(dataset, samples, epoch, seed, augmentation, training,
       ToNumbers(augmentation, dataset.shape.c), images, labels);
}

void LoadBatch(const Dataset& dataset, absl::Span<const uint32_t> samples, int32_t epoch,
               uint64_t seed, const Augmentation& augmentation, bool training, uint8_t* pixels,
               int32_t* labels) {
  Load(dataset, samples, epoch, seed, augmentation, training, ToBytes(dataset.shape.c), pixels,
       labels);
}

}  // namespace capstan::worker
