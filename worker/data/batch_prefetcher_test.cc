#include "worker/data/batch_prefetcher.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <condition_variable>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "common/testing/status_matchers.h"

namespace capstan::worker::batch_prefetcher_test {
namespace {

constexpr absl::Duration kLong = absl::Minutes(1);  // A test that waits this long has failed.

// Threads wait in Pass() until Open() is called.
class Gate {
 public:
  void Open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  void Pass() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return open_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
};

std::vector<BatchRange> Ranges(int64_t count, int64_t size = 2) {
  std::vector<BatchRange> ranges;
  for (int64_t i = 0; i < count; ++i) {
    ranges.push_back({.epoch = 0, .begin = i * size, .end = (i + 1) * size});
  }
  return ranges;
}

// Writes the positions themselves as labels.
absl::Status DecodePositions(const BatchRange& range, DecodedBatch& batch) {
  batch.range = range;
  batch.labels.resize(static_cast<size_t>(range.end - range.begin));
  for (size_t i = 0; i < batch.labels.size(); ++i) {
    batch.labels[i] = static_cast<int32_t>(range.begin) + static_cast<int32_t>(i);
  }
  batch.images.assign(batch.labels.size(), 1.0f);
  return absl::OkStatus();
}

TEST_CASE("Prefetcher: batches come in order from any number of threads", "[worker][data]") {
  for (const int threads : {1, 2, 5}) {
    BatchPrefetcher prefetcher(DecodePositions, {.threads = threads, .batches_ahead_max = 3});
    REQUIRE_OK(prefetcher.Start());
    const std::vector<BatchRange> ranges = Ranges(200);
    REQUIRE_OK(prefetcher.Add(ranges));
    DecodedBatch batch;
    for (const BatchRange& range : ranges) {
      REQUIRE_OK(prefetcher.Next(kLong, batch));
      REQUIRE(batch.range == range);
      REQUIRE(batch.labels == std::vector<int32_t>{static_cast<int32_t>(range.begin),
                                                   static_cast<int32_t>(range.begin) + 1});
    }
    CHECK_STATUS(prefetcher.Next(kLong, batch), absl::StatusCode::kOutOfRange, "taken");
  }
}

TEST_CASE("Prefetcher: a slow first batch does not let later ones overtake", "[worker][data]") {
  Gate first;
  Gate second_done;
  BatchPrefetcher prefetcher(
      [&](const BatchRange& range, DecodedBatch& batch) {
        if (range.begin == 0) first.Pass();
        if (range.begin == 2) second_done.Open();
        return DecodePositions(range, batch);
      },
      {.threads = 2});
  REQUIRE_OK(prefetcher.Start());
  REQUIRE_OK(prefetcher.Add(Ranges(2)));
  second_done.Pass();  // Another thread is past the second batch while the first still waits.
  DecodedBatch batch;
  CHECK_STATUS(prefetcher.Next(absl::ZeroDuration(), batch), absl::StatusCode::kDeadlineExceeded,
               "positions [0, 2) of epoch 0");
  CHECK(batch.labels.empty());
  first.Open();
  REQUIRE_OK(prefetcher.Next(kLong, batch));
  CHECK(batch.range.begin == 0);
  REQUIRE_OK(prefetcher.Next(kLong, batch));
  CHECK(batch.range.begin == 2);
}

TEST_CASE("Prefetcher: ranges may be added while batches are taken", "[worker][data]") {
  BatchPrefetcher prefetcher(DecodePositions, {.threads = 2, .batches_ahead_max = 2});
  REQUIRE_OK(prefetcher.Add(Ranges(1)));  // Allowed before the start, too.
  REQUIRE_OK(prefetcher.Start());
  DecodedBatch batch;
  REQUIRE_OK(prefetcher.Next(kLong, batch));
  CHECK_STATUS(prefetcher.Next(kLong, batch), absl::StatusCode::kOutOfRange, "taken");
  for (int32_t epoch = 1; epoch < 50; ++epoch) {
    REQUIRE_OK(prefetcher.Add({{.epoch = epoch, .begin = 0, .end = 3}}));
    REQUIRE_OK(prefetcher.Next(kLong, batch));
    CHECK(batch.range.epoch == epoch);
  }
}

TEST_CASE("Prefetcher: never more batches ahead than the bound, in reused memory",
          "[worker][data]") {
  constexpr int kAhead = 3;
  std::atomic<int> started = 0;
  std::atomic<int> taken = 0;
  std::atomic<int> ahead_seen = 0;
  std::mutex mutex;
  std::set<const float*> buffers;  // Guarded by mutex.
  BatchPrefetcher prefetcher(
      [&](const BatchRange& range, DecodedBatch& batch) {
        const int ahead = ++started - taken;
        int seen = ahead_seen;
        while (ahead > seen && !ahead_seen.compare_exchange_weak(seen, ahead)) {
        }
        const absl::Status status = DecodePositions(range, batch);
        const std::lock_guard lock(mutex);
        buffers.insert(batch.images.data());
        return status;
      },
      {.threads = 4, .batches_ahead_max = kAhead});
  REQUIRE_OK(prefetcher.Start());
  REQUIRE_OK(prefetcher.Add(Ranges(500)));
  DecodedBatch batch;
  for (int i = 0; i < 500; ++i) {
    ++taken;  // Counted before Next, because the batch's place becomes free within Next.
    REQUIRE_OK(prefetcher.Next(kLong, batch));
  }
  CHECK(ahead_seen <= kAhead);
  CHECK(buffers.size() <= kAhead + 2);  // The consumer has one more, and one is spare.
}

TEST_CASE("Prefetcher: a decoder's error comes after the batches before it, and stays",
          "[worker][data]") {
  BatchPrefetcher prefetcher(
      [](const BatchRange& range, DecodedBatch& batch) {
        if (range.begin == 6) return absl::DataLossError("sample 6 is torn");
        return DecodePositions(range, batch);
      },
      {.threads = 3});
  REQUIRE_OK(prefetcher.Start());
  REQUIRE_OK(prefetcher.Add(Ranges(20)));
  DecodedBatch batch;
  for (int64_t begin : {0, 2, 4}) {
    REQUIRE_OK(prefetcher.Next(kLong, batch));
    CHECK(batch.range.begin == begin);
  }
  for (int i = 0; i < 3; ++i) {
    CHECK_STATUS(prefetcher.Next(kLong, batch), absl::StatusCode::kDataLoss, "sample 6 is torn");
  }
  CHECK(batch.range.begin == 4);
}

TEST_CASE("Prefetcher: stopping with batches ahead and ranges waiting does not hang",
          "[worker][data]") {
  for (int taken = 0; taken < 5; ++taken) {
    BatchPrefetcher prefetcher(DecodePositions, {.threads = 3, .batches_ahead_max = 2});
    REQUIRE_OK(prefetcher.Start());
    REQUIRE_OK(prefetcher.Add(Ranges(100)));
    DecodedBatch batch;
    for (int i = 0; i < taken; ++i) REQUIRE_OK(prefetcher.Next(kLong, batch));
    prefetcher.Stop();
    prefetcher.Stop();
    CHECK_STATUS(prefetcher.Next(kLong, batch), absl::StatusCode::kCancelled, "stopped");
    CHECK_STATUS(prefetcher.Add(Ranges(1)), absl::StatusCode::kCancelled, "stopped");
    CHECK_STATUS(prefetcher.Start(), absl::StatusCode::kFailedPrecondition, "before");
  }
}

TEST_CASE("Prefetcher: stopping wakes a consumer that waits", "[worker][data]") {
  Gate decoding;
  Gate finish;
  BatchPrefetcher prefetcher(
      [&](const BatchRange& range, DecodedBatch& batch) {
        decoding.Open();
        finish.Pass();
        return DecodePositions(range, batch);
      },
      {});
  REQUIRE_OK(prefetcher.Start());
  REQUIRE_OK(prefetcher.Add(Ranges(1)));
  absl::Status woken;
  std::thread consumer([&] {
    DecodedBatch batch;
    woken = prefetcher.Next(absl::InfiniteDuration(), batch);
    finish.Open();  // Stop can join the decoder only after Next has come back.
  });
  decoding.Pass();
  prefetcher.Stop();
  consumer.join();
  CHECK_STATUS(woken, absl::StatusCode::kCancelled, "stopped");
}

TEST_CASE("Prefetcher: starting twice is refused, never starting is fine", "[worker][data]") {
  BatchPrefetcher prefetcher(DecodePositions, {});
  REQUIRE_OK(prefetcher.Start());
  CHECK_STATUS(prefetcher.Start(), absl::StatusCode::kFailedPrecondition, "started before");
  BatchPrefetcher never_started(DecodePositions, {});
  REQUIRE_OK(never_started.Add(Ranges(1)));
  DecodedBatch batch;
  CHECK_STATUS(never_started.Next(absl::ZeroDuration(), batch), absl::StatusCode::kDeadlineExceeded,
               "not decoded within 0");
}

TEST_CASE("Prefetcher: the list of waiting ranges is bounded", "[worker][data]") {
  BatchPrefetcher prefetcher(DecodePositions, {.ranges_max = 10});
  REQUIRE_OK(prefetcher.Add(Ranges(8)));
  CHECK_STATUS(prefetcher.Add(Ranges(3)), absl::StatusCode::kResourceExhausted,
               "3 batches added to the 8 that wait, expected at most 10");
  REQUIRE_OK(prefetcher.Add(Ranges(2)));
}

}  // namespace
}  // namespace capstan::worker::batch_prefetcher_test
