#include "worker/training/trainer/dataset_split.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"

namespace capstan::worker {
namespace {

constexpr size_t kBatchesPlanned = 4;  // Passed to the source, the next batch included.

}  // namespace

DatasetSplit::DatasetSplit(Dataset the_dataset, uint64_t seed, const Augmentation& augmentation,
                           DatasetDecoder::Mode mode, int decode_threads, DatasetDecoder::Into into)
    : dataset(std::move(the_dataset)),
      pixel_values(PixelValues(augmentation, dataset.shape.c)),
      decoder(dataset, seed, augmentation, mode, into),
      source([this](const BatchRange& range,
                    DecodedBatch& batch) { return decoder.Decode(range, batch); },
             {.threads = decode_threads, .batches_ahead_max = std::max(2, decode_threads)}) {}

BatchView DatasetSplit::ViewOf(const DecodedBatch& batch) const {
  return {.images = batch.images,
          .labels = batch.labels,
          .targets = batch.targets,
          .pixels = batch.pixels,
          .pixel_values = pixel_values};
}

absl::StatusOr<BatchResult> EvaluateSplit(DatasetSplit& split, Range positions, Network& network,
                                          absl::Span<const float> parameters,
                                          absl::Span<const float> statistics, Parameters* which,
                                          const BatchEvaluated& each) {
  if (positions.begin < 0 || positions.end > split.dataset.count) {
    return absl::InvalidArgumentError(
        absl::StrCat("evaluation of test samples [", positions.begin, ", ", positions.end,
                     "), expected a part of [0, ", split.dataset.count, ")"));
  }
  std::vector<BatchRange> ranges;
  for (int64_t begin = positions.begin; begin < positions.end; begin += kEvaluationBatchSize) {
    ranges.push_back({0, begin, std::min(begin + kEvaluationBatchSize, positions.end)});
  }
  BatchResult sum;
  for (size_t i = 0; i < ranges.size(); ++i) {
    CAPSTAN_ASSIGN_OR_RETURN(
        const DecodedBatch* decoded,
        split.source.Get(absl::MakeConstSpan(ranges).subspan(i, kBatchesPlanned)));
    CAPSTAN_ASSIGN_OR_RETURN(const BatchResult result,
                             network.Evaluate(split.ViewOf(*decoded), parameters, statistics,
                                              std::exchange(*which, Parameters::kSame)));
    sum.loss_sum += result.loss_sum;
    sum.correct += result.correct;
    sum.outputs += result.outputs;
    sum.scores.Merge(result.scores);
    if (each) each(*decoded);
  }
  return sum;
}

}  // namespace capstan::worker
