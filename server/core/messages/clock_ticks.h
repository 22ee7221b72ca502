// ClockTicks: the versions that a shard had when memberships reported how long the job had trained.
//
// They turn a table's time to live into a version: rows that were last updated before it are too
// old. Copies of a shard have the same memberships and updates, so they decide the same without a
// clock of their own. Called by ShardCore. Thread safety: thread-compatible.
// Invariants: (1) ticks ascend by their time, and their versions never decrease.
//             (2) at most one tick is at least a time to live older than the newest.
#ifndef CAPSTAN_SERVER_CORE_MESSAGES_CLOCK_TICKS_H_
#define CAPSTAN_SERVER_CORE_MESSAGES_CLOCK_TICKS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "common/types/ids.h"

namespace capstan::server {

// Longest training time that is accepted from a peer: sums with it do not overflow.
inline constexpr int64_t kClockSecondsMax = int64_t{1} << 62;

// The version that a shard had when a membership reported the time.
struct ClockTick {
  int64_t clock_seconds = 0;  // The job's training time.
  Version version;
  friend bool operator==(const ClockTick&, const ClockTick&) = default;
};

class ClockTicks {
 public:
  // Limit of the ticks that are kept: ticks closer than a 128th of the time to live are merged.
  static constexpr size_t kTicksMax = 130;

  // 0: rows have no time to live, and no tick is kept.
  explicit ClockTicks(int64_t ttl_seconds = 0) : ttl_seconds_(ttl_seconds) {}

  // Notes that the job has trained for `clock_seconds`. No effect unless that is longer than
  // before.
  void Note(int64_t clock_seconds, Version version);
  // Rows whose last update made a lower version are too old. 0: no row is.
  Version EvictBefore() const;

  const std::vector<ClockTick>& all() const { return ticks_; }
  // Replaces the ticks by saved ones. Errors: kDataLoss  ticks that a shard of `version` cannot
  // have; then nothing changes.
  absl::Status Restore(const std::vector<ClockTick>& ticks, Version version);

 private:
  int64_t ttl_seconds_;
  std::vector<ClockTick> ticks_;
};

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_CORE_MESSAGES_CLOCK_TICKS_H_
