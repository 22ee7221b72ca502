// HostCopies: copies between pinned memory and the host's arrays, on several threads, and in the
// same pass the check for numbers that are not finite.
//
// One core copies 10 to 20 GB/s, a card takes and gives 50. Large copies are cut into blocks, which
// the caller and up to `threads` - 1 others take one after the other; small ones the caller makes
// alone. The other threads start with the first large copy.
// Thread safety: used by one thread at a time.
#ifndef CAPSTAN_WORKER_TRAINING_HOST_COPIES_H_
#define CAPSTAN_WORKER_TRAINING_HOST_COPIES_H_

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
  // Enough for what a card takes and gives; the task has other threads as well.
  static constexpr int kThreadsMax = 4;
  // One for each two processors of this machine, which often share a core and then copy no faster
  // than one (tests/benchmark/gradient_path.cc); 1 to kThreadsMax.
  static int ThreadsHere();

  explicit HostCopies(int threads = ThreadsHere());  // REQUIRES: threads >= 1.
  ~HostCopies();
  HostCopies(const HostCopies&) = delete;
  HostCopies& operator=(const HostCopies&) = delete;

  void Copy(const void* from, int64_t bytes, void* to);
  // As Copy, of `count` numbers; returns whether all of them are finite.
  bool CopyChecked(NumberFormat format, const void* from, int64_t count, void* to);

 private:
  // Of a copy: the bytes [begin, end). Returns whether their numbers are finite.
  using Block = std::function<bool(int64_t begin, int64_t end)>;

  bool ForBlocks(int64_t bytes, const Block& block);
  void TakeBlocks(const Block& block);
  void Help();  // A thread's loop.

  const int threads_max_;

  // Of the copy that goes on.
  int64_t bytes_ = 0;
  std::atomic<int64_t> next_ = 0;  // Where the next block begins.
  std::atomic<bool> finite_ = true;

  absl::Mutex mutex_;
  const Block* block_ ABSL_GUARDED_BY(mutex_) = nullptr;  // Null: nobody's help is wanted.
  int helping_ ABSL_GUARDED_BY(mutex_) = 0;
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;  // Declared last: they die first.
};

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_TRAINING_HOST_COPIES_H_
