// MemoryStore: a Store in memory for tests and simulations. It can lose rows that are not durable,
// and it can fail.
//
//   Write --(kAtOnce)--> durable
//   Write --(kOnSync)--> written --Sync--> durable        Crash: rows that are not durable are lost
//
// Thread safety: thread-compatible.
#ifndef CAPSTAN_SCHEDULER_STORE_TESTING_MEMORY_STORE_H_
#define CAPSTAN_SCHEDULER_STORE_TESTING_MEMORY_STORE_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "scheduler/store/store.h"

namespace capstan::scheduler {

class MemoryStore final : public Store {
 public:
  enum class Durable { kAtOnce, kOnSync };
  explicit MemoryStore(Durable durable = Durable::kAtOnce) : durable_when_(durable) {}

  absl::StatusOr<StoreRows> Load() override { return written_; }

  absl::Status Write(absl::Span<const StoreWrite> writes) override {
    ++write_count_;
    if (absl::Status failure = std::exchange(failure_, absl::OkStatus()); !failure.ok()) {
      return failure;
    }
    for (const StoreWrite& write : writes) {
      if (write.value) {
        written_[write.key] = *write.value;
      } else {
        written_.erase(write.key);
      }
    }
    if (durable_when_ == Durable::kAtOnce) Sync();
    return absl::OkStatus();
  }

  void Sync() { durable_rows_ = written_; }
  void Crash() { written_ = durable_rows_; }
  // The next Write fails with `failure` and changes nothing.
  void FailNext(const absl::Status& failure) { failure_ = failure; }
  int write_count() const { return write_count_; }

 private:
  const Durable durable_when_;
  StoreRows written_;
  StoreRows durable_rows_;
  absl::Status failure_;
  int write_count_ = 0;
};

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_STORE_TESTING_MEMORY_STORE_H_
