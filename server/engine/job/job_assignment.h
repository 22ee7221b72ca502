// JobAssignment: applies what the scheduler assigns of one job to this server: routing tables,
// memberships and the read lease.
//
// JobRouting decides what a table means for this server. JobAssignment puts shards in place and
// removes them, gives their links their roles, and ends calls that wait for a shard whose primary
// is elsewhere now.
// Called by ServerAgent.
// Thread safety: thread-safe. All functions hold the job's mutex exclusively.
// Invariant: a shard is in JobState::engines if, and only if, the last table names this server for
// it.
#ifndef CAPSTAN_SERVER_ENGINE_JOB_JOB_ASSIGNMENT_H_
#define CAPSTAN_SERVER_ENGINE_JOB_JOB_ASSIGNMENT_H_

#include <cstdint>
#include <map>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "common/time/instant.h"
#include "common/types/ids.h"
#include "proto/scheduler.pb.h"
#include "server/core/messages/membership.h"
#include "server/core/replication/held_shard.h"
#include "server/core/replication/job_routing.h"
#include "server/engine/job/commit_pipeline.h"
#include "server/engine/job/job_state.h"
#include "server/engine/shard_engine.h"
#include "server/store/tables/table_shard.h"

namespace capstan::server {

struct MadeShard {
  ShardOrder order;
  TableShard shard;
};

class JobAssignment {
 public:
  JobAssignment(JobState* state, CommitPipeline* commits) : state_(state), commits_(commits) {}

  // The shards that must be made before SetRouting(routing) can be called; none for a table that
  // is not newer. Errors: as JobRouting::MissingShards.
  absl::StatusOr<std::vector<ShardOrder>> MissingShards(const v1::RoutingTable& routing,
                                                        const ShardSources& sources) const;
  // If all shards of a newer table begin anew from a checkpoint, what is held of earlier terms is
  // no longer needed: frees it, so that its memory can be used for the new shards.
  void ForgetForRestore(const v1::RoutingTable& routing, Term restore_term);
  // Applies the whole table: makes this server primary or replica of the shards that name it, drops
  // the rest, ends calls that wait for a shard whose primary is elsewhere now. Ignored if not
  // newer. REQUIRES: `made` is what MissingShards asked for.
  void SetRouting(const v1::RoutingTable& routing, std::vector<MadeShard> made);
  void SetMembership(const Membership& membership);
  // Before `until` no other server is made primary of this one's shards. Never goes back.
  void SetReadLease(Instant until);

  Generation routing_generation() const;
  Generation membership_generation() const;
  v1::RoutingTable routing() const;

 private:
  using MadeFrom = std::map<ShardKey, ShardOrder::From>;
  using Servers = std::map<FollowerKey, v1::ServerAddress>;

  // Whether the job is not closed, and the table is newer than the last.
  bool TakesLocked(const v1::RoutingTable& routing) const ABSL_SHARED_LOCKS_REQUIRED(state_->mutex);
  ShardState StateLocked(const HeldShard& shard) const ABSL_SHARED_LOCKS_REQUIRED(state_->mutex);
  ShardEngine& MakeEngineLocked(const HeldShard& shard, JobEffects* effects)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_->mutex);
  // `servers`: all that the table lists.
  void SetRouteLocked(const RoutedShard& routed, const Servers& servers, const MadeFrom& made,
                      JobEffects* effects) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_->mutex);
  // Returns the next engine.
  JobState::Engines::iterator RemoveLocked(JobState::Engines::iterator engine, JobEffects* effects)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_->mutex);

  JobState* const state_;
  CommitPipeline* const commits_;
  uint64_t engines_made_ ABSL_GUARDED_BY(state_->mutex) = 0;
};

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_ENGINE_JOB_JOB_ASSIGNMENT_H_
