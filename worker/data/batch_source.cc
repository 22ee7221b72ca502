#include "worker/data/batch_source.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/time/time.h"
#include "common/status/status_macros.h"

namespace capstan::worker {
namespace {

constexpr absl::Duration kDecodeTimeout = absl::Minutes(1);

}  // namespace

BatchSource::BatchSource(BatchPrefetcher::Decoder decoder, const BatchPrefetcher::Options& options)
    : decoder_(std::move(decoder)), options_(options) {}

absl::Status BatchSource::Restart() {
  asked_.clear();
  prefetcher_ = std::make_unique<BatchPrefetcher>(decoder_, options_);
  return prefetcher_->Start();
}

absl::StatusOr<const DecodedBatch*> BatchSource::Get(absl::Span<const BatchRange> upcoming) {
  const size_t common = std::min(asked_.size(), upcoming.size());
  const bool continues =
      std::equal(asked_.begin(), asked_.begin() + static_cast<ptrdiff_t>(common), upcoming.begin());
  if (prefetcher_ == nullptr || !continues) CAPSTAN_RETURN_IF_ERROR(Restart());
  if (upcoming.size() > asked_.size()) {
    const auto added = upcoming.subspan(asked_.size());
    CAPSTAN_RETURN_IF_ERROR(prefetcher_->Add(added));
    asked_.insert(asked_.end(), added.begin(), added.end());
  }
  CAPSTAN_RETURN_IF_ERROR(prefetcher_->Next(kDecodeTimeout, batch_));
  asked_.pop_front();
  return &batch_;
}

}  // namespace capstan::worker
