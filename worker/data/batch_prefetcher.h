// BatchPrefetcher: decodes batches in background threads ahead of their use, in order, in bounds.
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
// Thread safety: thread-safe; meant for one consumer (with several, each batch goes to one).
// Invariants: (1) batches come out in the order of their ranges, whatever thread decoded them;
//             (2) at most `batches_ahead_max` batches are decoded, or being so, and not taken;
//             (3) after a decoder's error, the batches before it still come out, nothing after it.
#ifndef CAPSTAN_WORKER_DATA_BATCH_PREFETCHER_H_
#define CAPSTAN_WORKER_DATA_BATCH_PREFETCHER_H_

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"

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
  std::vector<float> images;    // [end - begin, h, w, c]
  std::vector<int32_t> labels;  // [end - begin]
};

class BatchPrefetcher {
 public:
  // Fills a batch for a range, reusing the batch's memory. Called by several threads at a time.
  using Decoder = std::function<absl::Status(const BatchRange&, DecodedBatch&)>;

  struct Options {
    int threads = 1;              // >= 1.
    int batches_ahead_max = 4;    // >= 1. Bounds the memory: batches that wait to be taken.
    size_t ranges_max = 1 << 20;  // Bounds the list of ranges that wait to be decoded.
  };

  BatchPrefetcher(Decoder decoder, const Options& options);
  BatchPrefetcher(const BatchPrefetcher&) = delete;
  BatchPrefetcher& operator=(const BatchPrefetcher&) = delete;
  ~BatchPrefetcher();  // Stops.

  // Starts the threads. Errors: kFailedPrecondition  started or stopped before.
  absl::Status Start();

  // Appends ranges to be decoded.
  // Errors (nothing is appended): kResourceExhausted  more than ranges_max would wait.
  //                               kCancelled          stopped.
  absl::Status Add(absl::Span<const BatchRange> ranges);

  // Waits for the next batch in order and swaps it into `batch`, whose old memory is reused.
  // Errors (`batch` is unchanged):
  //   kOutOfRange        every range that was added has been taken.
  //   kDeadlineExceeded  not decoded within `timeout`; names the range. Ask again.
  //   kCancelled         stopped, before or during the wait.
  //   the decoder's      of the next range; the same from then on.
  absl::Status Next(absl::Duration timeout, DecodedBatch& batch);

  // Batches that have been decoded and not taken.
  int64_t ready_count() const;

  // Wakes a waiting Next, waits for batches in decoding and joins the threads. Idempotent.
  void Stop();

 private:
  // Life of a range; the entries stand in the order of Add.
  struct Entry {
    enum class State { kWaiting, kDecoding, kReady, kFailed };
    State state = State::kWaiting;
    BatchRange range;
    DecodedBatch batch;   // kReady.
    absl::Status status;  // kFailed.
  };

  void DecodeLoop();
  // The entry to be decoded next, or null while none may be started.
  Entry* TakeWaitingLocked();

  const Decoder decoder_;
  const Options options_;

  mutable std::mutex mutex_;
  std::condition_variable work_changed_;   // An entry may be decoded, or stopping_.
  std::condition_variable front_changed_;  // The front entry is ready or failed, or stopping_.

  // Guarded by mutex_. A deque: entries stay where they are while others come and go.
  std::deque<Entry> entries_;
  size_t started_count_ = 0;  // entries_[0, started_count_) are past kWaiting.
  bool failed_ = false;       // Some entry is kFailed: nothing more is started.
  bool running_ = false;
  bool stopping_ = false;
  std::vector<DecodedBatch> spare_;  // Memory to be reused.

  std::mutex join_mutex_;  // Held while joining, so that a second Stop waits for the first.
  std::vector<std::thread> threads_;
};

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_DATA_BATCH_PREFETCHER_H_
