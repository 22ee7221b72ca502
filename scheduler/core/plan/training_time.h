// TrainingTime: how long a job has trained, for servers whose rows have a time to live.
//
// Servers get it in whole ticks: a 64th of the shortest time to live, and at least a second.
//
//   STANDS --Count(trains)--> TRAINS: the time up to the next Count is counted --Count(!trains)-->
//   STANDS
//
// Owned by JobShared; JobRun counts it and reports it. Pure: no clock; the time comes in.
// Thread safety: thread-compatible.
#ifndef CAPSTAN_SCHEDULER_CORE_PLAN_TRAINING_TIME_H_
#define CAPSTAN_SCHEDULER_CORE_PLAN_TRAINING_TIME_H_

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/time/instant.h"
#include "scheduler/core/messages/loaded_check.h"

namespace capstan::scheduler {

// Checks a training time that was read. Errors: kDataLoss  it is negative or infinite.
absl::Status CheckTrained(absl::Duration trained);

class TrainingTime {
 public:
  explicit TrainingTime(int64_t ttl_seconds);  // 0: nothing is counted.

  // Adds the time since the last Count, if the job trained. `trains`: whether it does from now on.
  void Count(bool trains, Instant now);
  // Drops the time since the last Count, and stands up to a later Count. So a caller that skips
  // again and again is not woken for the rest of a tick. No effect if it stands.
  void Skip(Instant now);
  void Set(absl::Duration trained);  // Stands at that time.

  absl::Duration trained() const { return trained_; }  // Up to the last Count.
  int64_t ticks_seconds() const;                       // The whole ticks in it, rounded down.
  Instant NextTick() const;  // When the next one is over. InfiniteFuture(): it stands.

  // ---- durable state, in the form of scheduler/store/archive.h. What is loaded stands.
  template <typename Archive>
  void serialize(Archive& archive) {
    archive(trained_);
    CheckLoaded(archive, [this] { return CheckTrained(trained_); });
  }

 private:
  const absl::Duration tick_;  // Zero: nothing is counted.
  absl::Duration trained_;
  std::optional<Instant> trains_since_;  // The last Count; nothing: it stands. Not durable.
  std::optional<Instant> skipped_;       // The last Skip, up to a later Count. Not durable.
};

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_CORE_PLAN_TRAINING_TIME_H_
