// Times of a daemon's and a task's calls to the scheduler; the simulator uses the same ones.
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
// After an incarnation that ends sooner the daemon backs off, so that one whose incarnations are
// ended at once does not spin.
inline constexpr absl::Duration kShortIncarnation = absl::Seconds(5);
// A daemon whose name another one has asks again for this long: if that one was killed, the
// scheduler notices meanwhile.
inline constexpr absl::Duration kNameTakenLimit = absl::Seconds(1);
// A scheduler that answers "nothing new" this fast does not hold calls: the agent pauses by itself.
inline constexpr absl::Duration kHeldMin = absl::Milliseconds(20);

// Returns how long a sync may take, by a RegisterResponse or SyncTaskResponse, which says how long
// the scheduler holds it at most. So a lease survives two lost syncs and a third one that succeeds.
template <typename Response>
absl::Duration SyncTimeout(const Response& response) {
  const auto held = absl::Milliseconds(response.sync_interval_ms());
  const auto lease = absl::Milliseconds(response.lease_ms());
  return std::clamp(held, kHeldMin, absl::Minutes(1)) +
         std::clamp(lease / 4, absl::Milliseconds(250), absl::Seconds(5));
}
// The timeout of a sync before any response has given one.
inline constexpr absl::Duration kFirstSyncTimeout = absl::Seconds(2);

}  // namespace capstan::agent_timing

#endif  // CAPSTAN_COMMON_NET_NODE_AGENT_TIMING_H_
