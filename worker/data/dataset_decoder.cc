#include "worker/data/dataset_decoder.h"

#include <cstddef>
#include <memory>
#include <numeric>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"

namespace capstan::worker {

DatasetDecoder::DatasetDecoder(const Dataset& dataset, uint64_t seed,
                               const Augmentation& augmentation, Mode mode, Into into)
    : dataset_(dataset),
      seed_(seed),
      augmentation_(augmentation),
      mode_(mode),
      into_(into),
      order_(seed, dataset.count) {}

absl::Status DatasetDecoder::Decode(const BatchRange& range, DecodedBatch& batch) {
  if (range.begin < 0 || range.begin >= range.end || range.end > dataset_.count) {
    return absl::InvalidArgumentError(
        absl::StrCat("decode: positions [", range.begin, ", ", range.end,
                     "), expected a range that is not empty in [0, ", dataset_.count, ")"));
  }
  if (range.epoch < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("decode: epoch ", range.epoch, ", expected 0 or more"));
  }
  const auto count = static_cast<size_t>(range.end - range.begin);
  batch.range = range;
  const bool bytes = into_ == Into::kBytes;
  const size_t values = count * static_cast<size_t>(dataset_.shape.count());
  batch.images.resize(bytes ? 0 : values);
  batch.pixels.resize(bytes ? values : 0);
  batch.labels.resize(count);
  std::shared_ptr<const EpochOrder::Permutation> order;  // Keeps `samples` alive.
  std::vector<uint32_t> in_file_order;
  absl::Span<const uint32_t> samples;
  if (mode_ == Mode::kTraining) {
    order = order_.Get(range.epoch);
    samples = absl::MakeSpan(*order).subspan(static_cast<size_t>(range.begin), count);
  } else {
    in_file_order.resize(count);
    std::iota(in_file_order.begin(), in_file_order.end(), static_cast<uint32_t>(range.begin));
    samples = in_file_order;
  }
  const auto load = [&](auto* images) {
    LoadBatch(dataset_, samples, range.epoch, seed_, augmentation_, mode_ == Mode::kTraining,
              images, batch.labels.data());
  };
  if (bytes) {
    load(batch.pixels.data());
  } else {
    load(batch.images.data());
  }
  batch.targets.clear();
  const auto outputs = static_cast<ptrdiff_t>(dataset_.targets.empty() ? 0 : dataset_.classes);
  for (const uint32_t sample : samples) {
    const auto first = dataset_.targets.begin() + static_cast<ptrdiff_t>(sample) * outputs;
    batch.targets.insert(batch.targets.end(), first, first + outputs);
  }
  return absl::OkStatus();
}

}  // namespace capstan::worker
