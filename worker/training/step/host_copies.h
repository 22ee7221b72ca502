// HostCopies: copies between pinned memory and the host's arrays with several threads, and checks
// in the same pass that all numbers are finite.
//
// One core copies 10 to 20 GB/s; a GPU sends and receives 50. Large copies are cut into blocks,
// which the caller and up to `threads` - 1 other threads take one after the other; the caller makes
// small copies alone. The other threads start with the first large copy.
// Thread safety: used by one thread at a time.
#ifndef CAPSTAN_WORKER_TRAINING_STEP_HOST_COPIES_H_
#define CAPSTAN_WORKER_TRAINING_STEP_HOST_COPIES_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/wire/number_format.h"

namespace capstan::worker {

class HostCopies {
 public:
  // Enough for the bandwidth of a GPU; the task needs processors for other threads as well.
  static constexpr int kThreadsMax = 4;
  // One thread for each two processors of this machine, 1 to kThreadsMax: two processors often
  // share a core, and then copy no faster than one (tests/benchmark/gradient_path.cc).
  static int ThreadsHere();

  explicit HostCopies(int threads = ThreadsHere());  // REQUIRES: threads >= 1.
  ~HostCopies();
  HostCopies(const HostCopies&) = delete;
  HostCopies& operator=(const HostCopies&) = delete;

  void Copy(const void* from, int64_t bytes, void* to);
  // Same as Copy, for `count` numbers; returns true if all of them are finite.
  bool CopyChecked(NumberFormat format, const void* from, int64_t count, void* to);

 private:
  // Copies the bytes [begin, end) of a copy. Returns true if their numbers are finite.
  using Block = std::function<bool(int64_t begin, int64_t end)>;

  bool ForBlocks(int64_t bytes, const Block& block);
  void TakeBlocks(const Block& block);
  void Help();  // A thread's loop.

  const int threads_max_;

  // The current copy.
  int64_t bytes_ = 0;
  std::atomic<int64_t> next_ = 0;  // The next block begins at this byte.
  std::atomic<bool> finite_ = true;

  absl::Mutex mutex_;
  const Block* block_ ABSL_GUARDED_BY(mutex_) = nullptr;  // Null: no help is wanted.
  int helping_ ABSL_GUARDED_BY(mutex_) = 0;               // Threads that help now.
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;  // Declared last: they die first.
};

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_TRAINING_STEP_HOST_COPIES_H_
