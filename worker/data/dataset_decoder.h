// DatasetDecoder: decodes ranges of positions of a dataset, in an epoch's order in training and in
// file order in evaluation. A worker task gives it to its BatchPrefetcher as the decoder.
//
// Thread safety: Decode is thread-safe.
#ifndef CAPSTAN_WORKER_DATA_DATASET_DECODER_H_
#define CAPSTAN_WORKER_DATA_DATASET_DECODER_H_

#include <cstdint>

#include "absl/status/status.h"
#include "common/data/dataset.h"
#include "worker/data/batch_loader.h"
#include "worker/data/batch_prefetcher.h"
#include "worker/data/epoch_order.h"

namespace capstan::worker {

class DatasetDecoder {
 public:
  enum class Mode {
    kTraining,    // Position p of epoch e is entry p of its permutation; augmented.
    kEvaluation,  // Position p is sample p; not augmented; the epoch does not matter.
  };

  enum class Into { kNumbers, kBytes };  // Fill DecodedBatch::images, or pixels.

  // `dataset` is borrowed and must outlive the decoder. REQUIRES: `augmentation` fits its channels.
  DatasetDecoder(const Dataset& dataset, uint64_t seed, const Augmentation& augmentation, Mode mode,
                 Into into = Into::kNumbers);

  // Fills `batch` with the samples of `range`, reusing its memory.
  // Errors (`batch` is then unspecified):
  //   kInvalidArgument  the range is empty or outside [0, dataset.count), or the epoch is negative.
  absl::Status Decode(const BatchRange& range, DecodedBatch& batch);

 private:
  const Dataset& dataset_;
  const uint64_t seed_;
  const Augmentation augmentation_;
  const Mode mode_;
  const Into into_;
  EpochOrder order_;
};

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_DATA_DATASET_DECODER_H_
