// PrefetchedSource: batches on demand, made ahead as long as the plan holds. BatchSource decodes
// ranges of images.
//
// The task asks for the batches that it is going to use, in order; as long as each request
// continues the one before, they are ready when asked for. When the plan changes (a slot taken
// over, a new lease) what was made in vain is dropped. Thread safety: used by one thread at a time;
// the batches are made in other threads.
#ifndef CAPSTAN_WORKER_DATA_BATCH_SOURCE_H_
#define CAPSTAN_WORKER_DATA_BATCH_SOURCE_H_

#include <algorithm>
#include <cstddef>
#include <deque>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/status/status_macros.h"
#include "worker/data/batch_prefetcher.h"

namespace capstan::worker {

template <typename Part, typename Batch>
class PrefetchedSource {
 public:
  using Decoder = typename Prefetcher<Part, Batch>::Decoder;

  PrefetchedSource(Decoder decoder, const PrefetchOptions& options)
      : decoder_(std::move(decoder)), options_(options) {}

  // The batch upcoming[0]; the others are made ahead. Valid until the next call; may be moved from.
  // REQUIRES: upcoming is not empty.
  // Errors: the decoder's; kDeadlineExceeded after a minute.
  absl::StatusOr<Batch*> Get(absl::Span<const Part> upcoming);

  // The batch that was asked for after the one that Get gave last, if there is one and it is made:
  // else null, at once. The next Get gives it if asked for it. Valid until then.
  const Batch* Ahead();

 private:
  static constexpr absl::Duration kDecodeTimeout = absl::Minutes(1);

  absl::Status Restart();

  const Decoder decoder_;
  const PrefetchOptions options_;
  std::unique_ptr<Prefetcher<Part, Batch>> prefetcher_;
  std::deque<Part> asked_;  // Added to the prefetcher and not yet given.
  Batch batch_;
  Batch ahead_;  // Of asked_[0], if has_ahead_: taken and not yet given.
  bool has_ahead_ = false;
};

using BatchSource = PrefetchedSource<BatchRange, DecodedBatch>;

// ---------------------------------------------------------------- implementation

template <typename Part, typename Batch>
absl::Status PrefetchedSource<Part, Batch>::Restart() {
  asked_.clear();
  has_ahead_ = false;
  // The one before first: a decoder of one thread is never called by two.
  prefetcher_.reset();
  prefetcher_ = std::make_unique<Prefetcher<Part, Batch>>(decoder_, options_);
  return prefetcher_->Start();
}

template <typename Part, typename Batch>
absl::StatusOr<Batch*> PrefetchedSource<Part, Batch>::Get(absl::Span<const Part> upcoming) {
  const size_t common = std::min(asked_.size(), upcoming.size());
  const bool continues =
      std::equal(asked_.begin(), asked_.begin() + static_cast<ptrdiff_t>(common), upcoming.begin());
  if (prefetcher_ == nullptr || !continues) CAPSTAN_RETURN_IF_ERROR(Restart());
  if (upcoming.size() > asked_.size()) {
    const auto added = upcoming.subspan(asked_.size());
    CAPSTAN_RETURN_IF_ERROR(prefetcher_->Add(added));
    asked_.insert(asked_.end(), added.begin(), added.end());
  }
  if (has_ahead_) {
    std::swap(batch_, ahead_);
    has_ahead_ = false;
  } else {
    CAPSTAN_RETURN_IF_ERROR(prefetcher_->Next(kDecodeTimeout, batch_));
  }
  asked_.pop_front();
  return &batch_;
}

template <typename Part, typename Batch>
const Batch* PrefetchedSource<Part, Batch>::Ahead() {
  if (asked_.empty()) return nullptr;
  // An error is for the Get that asks for the batch.
  if (!has_ahead_) has_ahead_ = prefetcher_->Next(absl::ZeroDuration(), ahead_).ok();
  return has_ahead_ ? &ahead_ : nullptr;
}

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_DATA_BATCH_SOURCE_H_
