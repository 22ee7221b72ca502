// BatchSource: decoded batches on demand, decoded ahead as long as the plan holds.
//
// The task asks for the batches that it is going to use, in order; as long as each request
// continues the one before, they are ready when asked for. When the plan changes (a slot taken
// over, a new lease) what was decoded in vain is dropped. Thread safety: used by one thread at a
// time; decoding happens in its own.
#ifndef CAPSTAN_WORKER_DATA_BATCH_SOURCE_H_
#define CAPSTAN_WORKER_DATA_BATCH_SOURCE_H_

#include <deque>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "worker/data/batch_prefetcher.h"

namespace capstan::worker {

class BatchSource {
 public:
  BatchSource(BatchPrefetcher::Decoder decoder, const BatchPrefetcher::Options& options);

  // The batch upcoming[0]; the others are decoded ahead. Valid until the next call.
  // REQUIRES: upcoming is not empty and no range in it is empty.
  // Errors: the decoder's; kDeadlineExceeded after a minute.
  absl::StatusOr<const DecodedBatch*> Get(absl::Span<const BatchRange> upcoming);

 private:
  absl::Status Restart();

  const BatchPrefetcher::Decoder decoder_;
  const BatchPrefetcher::Options options_;
  std::unique_ptr<BatchPrefetcher> prefetcher_;
  std::deque<BatchRange> asked_;  // Added to the prefetcher and not yet taken.
  DecodedBatch batch_;
};

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_DATA_BATCH_SOURCE_H_
