// PrefetchedSource: gives batches on demand, and makes them ahead as long as the plan does not
// change. BatchSource decodes ranges of images.
//
// The task asks for the batches that it is going to use, in order; as long as each request
// continues the one before, they are ready when asked for. When the plan changes (a slot taken
// over, a new lease) the batches made for the old plan are dropped. Thread safety: used by one
// thread at a time; other threads make the batches.
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

  // Returns the batch upcoming[0]; the others are made ahead. Valid until the next call; may be
  // moved from.
  // REQUIRES: upcoming is not empty.
  // Errors: the decoder's; kDeadlineExceeded after a minute.
  absl::StatusOr<Batch*> Get(absl::Span<const Part> upcoming);

  // Returns the batch that follows the one that Get gave last, if it was asked for and is made;
  // else null. Does not wait. The result is valid until the next Get, which gives it if asked for.
  const Batch* Ahead();

 private:
  static constexpr absl::Duration kDecodeTimeout = absl::Minutes(1);

  absl::Status Restart();

  const Decoder decoder_;
  const PrefetchOptions options_;
  std::unique_ptr<Prefetcher<Part, Batch>> prefetcher_;
  std::deque<Part> asked_;  // Added to the prefetcher and not yet given.
  Batch batch_;
  Batch ahead_;  // If has_ahead_: the batch asked_[0], taken from prefetcher_ and not yet given.
  bool has_ahead_ = false;
};

using BatchSource = PrefetchedSource<BatchRange, DecodedBatch>;

// ---------------------------------------------------------------- implementation

template <typename Part, typename Batch>
absl::Status PrefetchedSource<Part, Batch>::Restart() {
  asked_.clear();
  has_ahead_ = false;
  // Ends the old prefetcher first, so that a decoder for one thread is never called by two.
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
  // The Get that asks for the batch reports an error.
  if (!has_ahead_) has_ahead_ = prefetcher_->Next(absl::ZeroDuration(), ahead_).ok();
  return has_ahead_ ? &ahead_ : nullptr;
}

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_DATA_BATCH_SOURCE_H_
