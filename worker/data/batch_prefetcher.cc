#include "worker/data/batch_prefetcher.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"

namespace capstan::worker {
namespace {

// std::condition_variable adds a timeout to the time now: an infinite one would overflow.
constexpr absl::Duration kTimeoutMax = absl::Hours(24);

absl::Status Stopped() { return absl::CancelledError("the batch prefetcher has been stopped"); }

}  // namespace

BatchPrefetcher::BatchPrefetcher(Decoder decoder, const Options& options)
    : decoder_(std::move(decoder)), options_(options) {}

BatchPrefetcher::~BatchPrefetcher() { Stop(); }

absl::Status BatchPrefetcher::Start() {
  const std::lock_guard join_lock(join_mutex_);
  {
    const std::lock_guard lock(mutex_);
    if (running_ || stopping_) {
      return absl::FailedPreconditionError("the batch prefetcher has been started before");
    }
    running_ = true;
  }
  for (int i = 0; i < options_.threads; ++i) threads_.emplace_back([this] { DecodeLoop(); });
  return absl::OkStatus();
}

absl::Status BatchPrefetcher::Add(absl::Span<const BatchRange> ranges) {
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) return Stopped();
    if (ranges.size() > options_.ranges_max - std::min(options_.ranges_max, entries_.size())) {
      return absl::ResourceExhaustedError(
          absl::StrCat(ranges.size(), " batches added to the ", entries_.size(),
                       " that wait, expected at most ", options_.ranges_max, " together"));
    }
    for (const BatchRange& range : ranges) entries_.emplace_back().range = range;
  }
  work_changed_.notify_all();
  return absl::OkStatus();
}

absl::Status BatchPrefetcher::Next(absl::Duration timeout, DecodedBatch& batch) {
  {
    std::unique_lock lock(mutex_);
    const auto may_return = [this] {
      return stopping_ || entries_.empty() || entries_.front().state == Entry::State::kReady ||
             entries_.front().state == Entry::State::kFailed;
    };
    const auto limit = absl::ToChronoNanoseconds(std::min(timeout, kTimeoutMax));
    if (!front_changed_.wait_for(lock, limit, may_return)) {
      const BatchRange& range = entries_.front().range;
      return absl::DeadlineExceededError(
          absl::StrCat("the batch of positions [", range.begin, ", ", range.end, ") of epoch ",
                       range.epoch, " was not decoded within ", absl::FormatDuration(timeout)));
    }
    if (stopping_) return Stopped();
    if (entries_.empty()) return absl::OutOfRangeError("every batch has been taken");
    if (entries_.front().state == Entry::State::kFailed) return entries_.front().status;
    std::swap(batch, entries_.front().batch);
    spare_.push_back(std::move(entries_.front().batch));
    entries_.pop_front();
    --started_count_;
  }
  work_changed_.notify_one();
  return absl::OkStatus();
}

int64_t BatchPrefetcher::ready_count() const {
  const std::lock_guard lock(mutex_);
  return std::count_if(entries_.begin(),
                       entries_.begin() + static_cast<std::ptrdiff_t>(started_count_),
                       [](const Entry& entry) { return entry.state == Entry::State::kReady; });
}

void BatchPrefetcher::Stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  work_changed_.notify_all();
  front_changed_.notify_all();
  const std::lock_guard join_lock(join_mutex_);
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

BatchPrefetcher::Entry* BatchPrefetcher::TakeWaitingLocked() {
  const auto ahead_max = static_cast<size_t>(options_.batches_ahead_max);
  if (failed_ || started_count_ >= std::min(ahead_max, entries_.size())) return nullptr;
  Entry& entry = entries_[started_count_++];
  entry.state = Entry::State::kDecoding;
  if (!spare_.empty()) {
    entry.batch = std::move(spare_.back());
    spare_.pop_back();
  }
  return &entry;
}

void BatchPrefetcher::DecodeLoop() {
  std::unique_lock lock(mutex_);
  while (true) {
    Entry* entry = nullptr;
    work_changed_.wait(
        lock, [this, &entry] { return stopping_ || (entry = TakeWaitingLocked()) != nullptr; });
    if (stopping_) return;
    lock.unlock();
    // A kDecoding entry belongs to this thread: nobody removes it or looks into its batch.
    const absl::Status status = decoder_(entry->range, entry->batch);
    lock.lock();
    entry->state = status.ok() ? Entry::State::kReady : Entry::State::kFailed;
    entry->status = status;
    if (!status.ok()) failed_ = true;
    if (entry == &entries_.front()) front_changed_.notify_all();
  }
}

}  // namespace capstan::worker
