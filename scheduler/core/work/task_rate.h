// TaskRate: how fast one incarnation of a task trains, as it was last measured.
//
// Thread safety: thread-compatible.
#ifndef CAPSTAN_SCHEDULER_CORE_WORK_TASK_RATE_H_
#define CAPSTAN_SCHEDULER_CORE_WORK_TASK_RATE_H_

#include <cstdint>
#include <optional>

#include "absl/time/time.h"
#include "common/time/instant.h"

namespace capstan::scheduler {

class TaskRate {
 public:
  static constexpr absl::Duration kShortest = absl::Seconds(1);  // Shortest measurement.

  // The next Add begins a new measurement: the task trains from then on. Until that has a result,
  // the last result stays.
  void Begin() { since_.reset(); }
  // `samples`: trained in this incarnation so far; never less than before.
  void Add(int64_t samples, Instant now) {
    if (!since_) {
      since_ = now;
      samples_ = samples;
    } else if (now >= *since_ + kShortest && samples > samples_) {
      per_second_ = static_cast<double>(samples - samples_) / absl::ToDoubleSeconds(now - *since_);
    }
  }
  // Samples a second; 0: not known yet.
  double per_second() const { return per_second_; }

 private:
  std::optional<Instant> since_;
  int64_t samples_ = 0;
  double per_second_ = 0;
};

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_CORE_WORK_TASK_RATE_H_
