// RegistrationLimits: bounds how many daemons register in a minute. Each registration writes to the
// store and may move shards and tasks.
//
// Known names and new ones have separate bounds: a daemon that comes back is never refused because
// of others, however many of them register, but only if it registers too often itself. A daemon
// that is refused asks again (node_registration.h), and a minute later there is room.
// Owned by Membership. Thread safety: thread-compatible.
#ifndef CAPSTAN_SCHEDULER_CORE_NODES_REGISTRATION_LIMITS_H_
#define CAPSTAN_SCHEDULER_CORE_NODES_REGISTRATION_LIMITS_H_

#include <map>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/time/instant.h"
#include "common/types/ids.h"

namespace capstan::scheduler {

class RegistrationLimits {
 public:
  struct Options {
    // A daemon whose registrations keep ending registers about once a second.
    int per_name_max = 120;
    // All daemons of a large cluster may start at once with a new scheduler.
    int new_names_max = 1200;
    absl::Duration window = absl::Minutes(1);
  };
  explicit RegistrationLimits(const Options& options) : options_(options) {}

  // Counts a registration of `name`; `known`: the scheduler remembers a daemon of that name, dead
  // or alive. The windows of time follow each other; each counts anew.
  // Errors (nothing is counted): kResourceExhausted  says which bound, and to ask again.
  absl::Status Count(const NodeId& name, bool known, Instant now);

 private:
  const Options options_;
  Instant window_end_;
  std::map<NodeId, int> counts_;  // By name, in this window.
  int new_names_ = 0;
};

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_CORE_NODES_REGISTRATION_LIMITS_H_
