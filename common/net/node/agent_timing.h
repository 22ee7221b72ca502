// Times of a daemon's and a task's connection to the scheduler, which the simulator's keep to as
// well.
//
// Thread safety: pure.
#ifndef CAPSTAN_COMMON_NET_NODE_AGENT_TIMING_H_
#define CAPSTAN_COMMON_NET_NODE_AGENT_TIMING_H_

#include <algorithm>

#include "absl/time/time.h"

namespace capstan::agent_timing {

inline constexpr absl::Duration kRegisterTimeout = absl::Seconds(5);
inline constexpr absl::Duration kBackoffMin = absl::Milliseconds(100);
inline constexpr absl::Duration kBackoffMax = absl::Seconds(1);
// An incarnation that ends sooner is paced, so that a daemon whose incarnations are ended at once
// does not spin.
inline constexpr absl::Duration kShortIncarnation = absl::Seconds(5);
// A daemon whose name another one has asks for so long: a killed one is found out meanwhile.
inline constexpr absl::Duration kNameTakenLimit = absl::Seconds(1);
// A scheduler that answers "nothing new" this fast does not hold calls: the agent paces itself.
inline constexpr absl::Duration kHeldMin = absl::Milliseconds(20);

// How long a sync may take, by a RegisterResponse or SyncTaskResponse, which say how long the
// scheduler holds it at most: a lease bears two that are lost, and a third that comes through.
template <typename Response>
absl::Duration SyncTimeout(const Response& response) {
  const auto held = absl::Milliseconds(response.sync_interval_ms());
  const auto lease = absl::Milliseconds(response.lease_ms());
  return std::clamp(held, kHeldMin, absl::Minutes(1)) +
         std::clamp(lease / 4, absl::Milliseconds(250), absl::Seconds(5));
}
// Before anything has said so.
inline constexpr absl::Duration kFirstSyncTimeout = absl::Seconds(2);

}  // namespace capstan::agent_timing

#endif  // CAPSTAN_COMMON_NET_NODE_AGENT_TIMING_H_
