// ShardRecord: one change of a shard's state, as replicas apply it and logs keep it.
// ShardCoreState: all of a core's state, for a new replica or a checkpoint.
//
// Plain data without payload: the gradient of a push or update is the shell's.
// Thread safety: values.
#ifndef CAPSTAN_SERVER_CORE_MESSAGES_SHARD_RECORD_H_
#define CAPSTAN_SERVER_CORE_MESSAGES_SHARD_RECORD_H_

#include <cstdint>
#include <vector>

#include "common/types/ids.h"
#include "server/core/messages/clock_ticks.h"
#include "server/core/messages/membership.h"

namespace capstan::server {

// Largest position, and largest count of pushes, that is accepted from a disk or a peer: those that
// follow do not overflow.
inline constexpr Position kPositionMax{int64_t{1} << 62};

struct ShardRecord {
  enum class Kind {
    kPush,    // SSP, ASP: one push. Has a gradient.
    kUpdate,  // BSP: the sum of one iteration's slots. Has a gradient.
    kMembership,
    kBarrier,  // Changes nothing but the position.
  };
  Kind kind = Kind::kBarrier;
  Position position;  // The shard's, once the record is applied; from 1 up, without gaps.
  // kPush.
  Rank rank;
  Incarnation incarnation;
  Iteration iteration;
  Sequence sequence;
  Sequence sequence_low_water;
  Version version;        // kUpdate: the version before it, which is the iteration that was summed.
  Membership membership;  // kMembership.
  friend bool operator==(const ShardRecord&, const ShardRecord&) = default;
};

// The state of a duplicate filter for one rank's incarnation.
struct PushMarks {
  Rank rank;
  Incarnation incarnation;        // The lowest that is accepted.
  bool listed = false;            // A membership has named it.
  Sequence low_water{1};          // Every sequence below it counts as applied.
  std::vector<Sequence> applied;  // At or above low_water, ascending.
  friend bool operator==(const PushMarks&, const PushMarks&) = default;
};

// SSP, ASP: the clock of one worker.
struct WorkerClock {
  Rank rank;
  Incarnation incarnation;
  Iteration finished;  // Count of iterations.
  bool active = false;
  Iteration start_iteration;
  friend bool operator==(const WorkerClock&, const WorkerClock&) = default;
};

// All state of one core. A BSP iteration of which only some slots have arrived is not part of it:
// its pushes are not acknowledged before its update is safe, and are sent again.
struct ShardCoreState {
  Position position;
  Version version;
  bool previous_readable = false;
  Generation membership_generation;
  int64_t pushes_recorded = 0;
  int64_t pushes_duplicate = 0;
  int64_t pushes_late = 0;
  Incarnation incarnation_floor = {};  // The highest of all memberships.
  double learning_rate_factor = 1;     // The newest membership's.
  std::vector<ClockTick> ticks = {};   // See ClockTicks.
  std::vector<PushMarks> push_marks;   // Ordered by rank.
  bool members_known = false;
  std::vector<WorkerClock> members;  // Ordered by rank.
  std::vector<WorkerClock> early;    // Incarnations that pushed before any membership listed them.
  friend bool operator==(const ShardCoreState&, const ShardCoreState&) = default;
};

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_CORE_MESSAGES_SHARD_RECORD_H_
