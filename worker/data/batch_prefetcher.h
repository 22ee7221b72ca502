// Prefetcher: makes batches from parts of the data in background threads, ahead of their use. It
// gives them in order and makes a bounded number ahead. BatchPrefetcher decodes ranges of images.
//
//   DatasetDecoder decoder(dataset, seed, augmentation, DatasetDecoder::Mode::kTraining);
//   BatchPrefetcher prefetcher(
//       [&](const BatchRange& r, DecodedBatch& b) { return decoder.Decode(r, b); }, {});
//   prefetcher.Start();
//   prefetcher.Add(ranges_of_a_lease);           // any time, also while batches are taken
//   DecodedBatch batch;                          // its memory is swapped, not allocated anew
//   while (...) { status = prefetcher.Next(timeout, batch); ... }
//   prefetcher.Stop();
//
//             Start            Stop, destructor
//   CREATED ---------> RUNNING ----------------> STOPPED
//
// Thread safety: thread-safe; meant for one consumer (of several, one gets each batch).
// Invariants: (1) Next gives batches in the order of their ranges, whatever thread decoded them;
//             (2) at most `batches_ahead_max` batches are decoded, or being decoded, and not taken;
//             (3) after a decoder's error, Next gives the batches before it, and nothing after it.
#ifndef CAPSTAN_WORKER_DATA_BATCH_PREFETCHER_H_
#define CAPSTAN_WORKER_DATA_BATCH_PREFETCHER_H_

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/time/duration_text.h"

namespace capstan::worker {

// Positions [begin, end) of an epoch: one batch.
struct BatchRange {
  int32_t epoch = 0;
  int64_t begin = 0;
  int64_t end = 0;
  friend bool operator==(const BatchRange&, const BatchRange&) = default;
};

struct DecodedBatch {
  BatchRange range;
  std::vector<float> images;    // [end - begin, h, w, c]; empty if `pixels` has the batch.
  std::vector<uint8_t> pixels;  // The same as bytes, to be looked up in PixelValues; else empty.
  std::vector<int32_t> labels;  // [end - begin]; zeros if labels are numbers.
  std::vector<float> targets;   // [end - begin, outputs] if labels are numbers; else empty.
};

std::string NameOf(const BatchRange& range);  // A name for messages.

struct PrefetchOptions {
  int threads = 1;              // >= 1.
  int batches_ahead_max = 4;    // >= 1. Bounds the memory of batches that wait to be taken.
  size_t ranges_max = 1 << 20;  // Bounds the list of ranges that are added and not taken.
};

// `Part` is a value with NameOf(part), `Batch` is cheap to swap.
template <typename Part, typename Batch>
class Prefetcher {
 public:
  // Fills a batch for a part, reusing the batch's memory. options.threads threads call it at once.
  using Decoder = std::function<absl::Status(const Part&, Batch&)>;
  using Options = PrefetchOptions;

  Prefetcher(Decoder decoder, const Options& options)
      : decoder_(std::move(decoder)), options_(options) {}
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;
  ~Prefetcher() { Stop(); }

  // Starts the threads. Errors: kFailedPrecondition  started or stopped before.
  absl::Status Start();

  // Appends ranges to be decoded.
  // Errors (nothing is appended): kResourceExhausted  more than ranges_max would be in the list.
  //                               kCancelled          stopped.
  absl::Status Add(absl::Span<const Part> ranges);

  // Waits for the next batch in order and swaps it into `batch`, whose old memory is reused.
  // Errors (`batch` is unchanged):
  //   kOutOfRange        every range that was added has been taken.
  //   kDeadlineExceeded  not decoded within `timeout`; names the range. May be called again.
  //   kCancelled         stopped, before or during the wait.
  //   the decoder's      the error of the next range; every later call returns it again.
  absl::Status Next(absl::Duration timeout, Batch& batch);

  // Wakes a waiting Next, waits for batches being decoded and joins the threads. Idempotent.
  void Stop();

 private:
  // The state of a range; the entries are in the order of Add.
  struct Entry {
    enum class State { kWaiting, kDecoding, kReady, kFailed };
    State state = State::kWaiting;
    Part range;
    Batch batch;          // Valid if kReady.
    absl::Status status;  // Why it has failed, if kFailed.
  };

  // std::condition_variable adds a timeout to the time now: an infinite one would overflow.
  static constexpr absl::Duration kTimeoutMax = absl::Hours(24);
  static absl::Status Stopped() {
    return absl::CancelledError("the batch prefetcher has been stopped");
  }

  void DecodeLoop();
  // Returns the entry to be decoded next, or null while none may be started.
  Entry* TakeWaitingLocked();

  const Decoder decoder_;
  const Options options_;

  std::mutex mutex_;
  std::condition_variable work_changed_;   // An entry may be decoded, or stopping_.
  std::condition_variable front_changed_;  // The front entry is ready or failed, or stopping_.

  // Guarded by mutex_. A deque does not move entries when others are added or removed at its ends.
  std::deque<Entry> entries_;
  size_t started_count_ = 0;  // entries_[0, started_count_) are past kWaiting.
  bool failed_ = false;       // An entry is kFailed: nothing more is started.
  bool running_ = false;
  bool stopping_ = false;
  std::vector<Batch> spare_;  // Batches whose memory is reused.

  std::mutex join_mutex_;  // Held while joining, so that a second Stop waits for the first.
  std::vector<std::thread> threads_;
};

using BatchPrefetcher = Prefetcher<BatchRange, DecodedBatch>;

// ---------------------------------------------------------------- implementation

template <typename Part, typename Batch>
absl::Status Prefetcher<Part, Batch>::Start() {
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

template <typename Part, typename Batch>
absl::Status Prefetcher<Part, Batch>::Add(absl::Span<const Part> ranges) {
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) return Stopped();
    if (ranges.size() > options_.ranges_max - std::min(options_.ranges_max, entries_.size())) {
      return absl::ResourceExhaustedError(
          absl::StrCat(ranges.size(), " batches added to the ", entries_.size(),
                       " that wait, expected at most ", options_.ranges_max, " together"));
    }
    for (const Part& range : ranges) entries_.emplace_back().range = range;
  }
  work_changed_.notify_all();
  return absl::OkStatus();
}

template <typename Part, typename Batch>
absl::Status Prefetcher<Part, Batch>::Next(absl::Duration timeout, Batch& batch) {
  {
    std::unique_lock lock(mutex_);
    const auto may_return = [this] {
      return stopping_ || entries_.empty() || entries_.front().state == Entry::State::kReady ||
             entries_.front().state == Entry::State::kFailed;
    };
    const auto limit = absl::ToChronoNanoseconds(std::min(timeout, kTimeoutMax));
    if (!front_changed_.wait_for(lock, limit, may_return)) {
      return absl::DeadlineExceededError(absl::StrCat(
          NameOf(entries_.front().range), " was not decoded within ", DurationText(timeout)));
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

template <typename Part, typename Batch>
void Prefetcher<Part, Batch>::Stop() {
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

template <typename Part, typename Batch>
typename Prefetcher<Part, Batch>::Entry* Prefetcher<Part, Batch>::TakeWaitingLocked() {
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

template <typename Part, typename Batch>
void Prefetcher<Part, Batch>::DecodeLoop() {
  std::unique_lock lock(mutex_);
  while (true) {
    Entry* entry = nullptr;
    work_changed_.wait(
        lock, [this, &entry] { return stopping_ || (entry = TakeWaitingLocked()) != nullptr; });
    if (stopping_) return;
    lock.unlock();
    // A kDecoding entry belongs to this thread: no other thread removes it or reads its batch.
    const absl::Status status = decoder_(entry->range, entry->batch);
    lock.lock();
    entry->state = status.ok() ? Entry::State::kReady : Entry::State::kFailed;
    entry->status = status;
    if (!status.ok()) failed_ = true;
    if (entry == &entries_.front()) front_changed_.notify_all();
  }
}

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_DATA_BATCH_PREFETCHER_H_
