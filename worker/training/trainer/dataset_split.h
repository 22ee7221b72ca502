// DatasetSplit: a split of image data with the threads that decode it ahead; and its evaluation.
//
// EvaluateSplit evaluates all models of layers: for a task after each epoch, and for an exported
// model. Thread safety: used by one thread at a time; its own threads decode batches ahead.
#ifndef CAPSTAN_WORKER_TRAINING_TRAINER_DATASET_SPLIT_H_
#define CAPSTAN_WORKER_TRAINING_TRAINER_DATASET_SPLIT_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/data/dataset.h"
#include "common/types/ids.h"
#include "worker/data/batch_loader.h"
#include "worker/data/batch_prefetcher.h"
#include "worker/data/batch_source.h"
#include "worker/data/dataset_decoder.h"
#include "worker/training/network.h"

namespace capstan::worker {

inline constexpr int64_t kEvaluationBatchSize = 256;  // Samples. It does not change the result.

struct DatasetSplit {
  // Decoding a batch of LeNet takes a fiftieth of the time of computing it on a CPU: one thread and
  // two batches ahead suffice. Faster devices need more threads, each with a batch of its own.
  DatasetSplit(Dataset the_dataset, uint64_t seed, const Augmentation& augmentation,
               DatasetDecoder::Mode mode, int decode_threads = 1,
               DatasetDecoder::Into into = DatasetDecoder::Into::kNumbers);

  BatchView ViewOf(const DecodedBatch& batch) const;

  const Dataset dataset;
  const std::vector<float> pixel_values;  // The bytes' values, for decoders that give bytes.
  DatasetDecoder decoder;
  BatchSource source;  // Declared last: its threads use the others.
};

// Called when a network has computed a batch: Network::AppendLogits gives its outputs.
using BatchEvaluated = std::function<void(const DecodedBatch&)>;

// Computes the loss and hits over the samples at `positions` (in file order), of any number.
//   parameters, statistics  see Network::Evaluate
//   which  the value for the first batch; set to kSame
//   each   may be null
// REQUIRES: the network takes kEvaluationBatchSize samples, and the split decodes in file order.
// Errors: kInvalidArgument  positions outside [0, split.dataset.count); else those of
// Network::Evaluate.
absl::StatusOr<BatchResult> EvaluateSplit(DatasetSplit& split, Range positions, Network& network,
                                          absl::Span<const float> parameters,
                                          absl::Span<const float> statistics, Parameters* which,
                                          const BatchEvaluated& each = nullptr);

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_TRAINING_TRAINER_DATASET_SPLIT_H_
