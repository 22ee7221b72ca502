#include "worker/data/dataset_decoder.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <vector>

#include "common/random/permutation.h"
#include "common/random/philox.h"
#include "common/testing/status_matchers.h"

namespace capstan::worker::dataset_decoder_test {
namespace {

using Mode = DatasetDecoder::Mode;

// `count` images of one pixel; image i has label i and value i.
Dataset Numbered(int64_t count) {
  Dataset dataset;
  dataset.count = count;
  dataset.classes = 256;
  for (int64_t i = 0; i < count; ++i) {
    dataset.pixels.push_back(static_cast<uint8_t>(i));
    dataset.labels.push_back(static_cast<uint8_t>(i));
  }
  return dataset;
}

TEST_CASE("Dataset decoder: an epoch through a prefetcher is every sample once, in its order",
          "[worker][data]") {
  const Dataset dataset = Numbered(101);
  DatasetDecoder decoder(dataset, 5, {}, Mode::kTraining);
  BatchPrefetcher prefetcher(
      [&decoder](const BatchRange& range, DecodedBatch& batch) {
        return decoder.Decode(range, batch);
      },
      {.threads = 2});
  REQUIRE_OK(prefetcher.Start());
  for (int32_t epoch = 0; epoch < 3; ++epoch) {
    std::vector<BatchRange> ranges;
    for (int64_t begin = 0; begin < 101; begin += 8) {
      ranges.push_back({.epoch = epoch, .begin = begin, .end = std::min<int64_t>(begin + 8, 101)});
    }
    REQUIRE_OK(prefetcher.Add(ranges));
  }
  DecodedBatch batch;
  for (int32_t epoch = 0; epoch < 3; ++epoch) {
    std::vector<uint32_t> seen;
    while (seen.size() < 101) {
      REQUIRE_OK(prefetcher.Next(absl::Minutes(1), batch));
      REQUIRE(batch.images.size() == batch.labels.size());
      for (size_t i = 0; i < batch.labels.size(); ++i) {
        CHECK(batch.images[i] == static_cast<float>(batch.labels[i] / 255.0));
        seen.push_back(static_cast<uint32_t>(batch.labels[i]));
      }
    }
    CHECK(seen == MakePermutation(MixKey(MixKey(5, 1), static_cast<uint64_t>(epoch)), 101));
  }
  CHECK_STATUS(prefetcher.Next(absl::Minutes(1), batch), absl::StatusCode::kOutOfRange, "taken");
}

TEST_CASE("Dataset decoder: evaluation reads in file order without augmentation",
          "[worker][data]") {
  const Dataset dataset = Numbered(10);
  DatasetDecoder decoder(dataset, 5, {.crop_padding = 1}, Mode::kEvaluation);
  DecodedBatch batch;
  REQUIRE_OK(decoder.Decode({.epoch = 4, .begin = 3, .end = 6}, batch));
  CHECK(batch.labels == std::vector<int32_t>{3, 4, 5});
  CHECK(batch.images == std::vector<float>{3 / 255.0f, 4 / 255.0f, 5 / 255.0f});
}

TEST_CASE("Dataset decoder: images as bytes, in memory that held numbers", "[worker][data]") {
  const Dataset dataset = Numbered(10);
  DatasetDecoder numbers(dataset, 5, {}, Mode::kEvaluation);
  DatasetDecoder bytes(dataset, 5, {}, Mode::kEvaluation, DatasetDecoder::Into::kBytes);
  DecodedBatch batch;
  REQUIRE_OK(numbers.Decode({.epoch = 0, .begin = 0, .end = 4}, batch));
  REQUIRE_OK(bytes.Decode({.epoch = 0, .begin = 3, .end = 6}, batch));
  CHECK(batch.images.empty());
  CHECK(batch.pixels == std::vector<uint8_t>{3, 4, 5});
  CHECK(batch.labels == std::vector<int32_t>{3, 4, 5});
}

TEST_CASE("Dataset decoder: a range outside the dataset is refused", "[worker][data]") {
  const Dataset dataset = Numbered(10);
  for (const Mode mode : {Mode::kTraining, Mode::kEvaluation}) {
    DatasetDecoder decoder(dataset, 5, {}, mode);
    DecodedBatch batch;
    for (const BatchRange& range :
         {BatchRange{0, 8, 11}, {0, -1, 2}, {0, 3, 3}, {0, 5, 4}, {0, 10, 11}}) {
      CHECK_STATUS(decoder.Decode(range, batch), absl::StatusCode::kInvalidArgument,
                   "expected a range that is not empty in [0, 10)");
    }
    CHECK_STATUS(decoder.Decode({-1, 0, 1}, batch), absl::StatusCode::kInvalidArgument,
                 "epoch -1, expected 0 or more");
  }
}

}  // namespace
}  // namespace capstan::worker::dataset_decoder_test
