// JobAssignment: takes in what the scheduler assigns of one job to this server: routing tables,
// memberships and the read lease.
//
// What a table means for this server is JobRouting's decision; here shards are put in place and
// removed, their links get their roles, and calls that wait for a shard which is primary elsewhere
// now are ended.
// Called by ServerAgent.
// Thread safety: thread-safe. All functions have the job's mutex for themselves.
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
  // Where all shards of a newer table begin anew from a checkpoint, what is held of the job's
  // earlier course is worth nothing: lets go of it, so that its memory is there for what is made.
  void ForgetForRestore(const v1::RoutingTable& routing, Term restore_term);
  // Takes the whole table in: makes this server primary or replica of what names it, drops the
  // rest, ends calls that wait for a shard whose primary is elsewhere now. Ignored if not newer.
  // REQUIRES: `made` is what MissingShards asked for.
  void SetRouting(const v1::RoutingTable& routing, std::vector<MadeShard> made);
  void SetMembership(const Membership& membership);
  // Until then no other server is made primary of this one's shards. Never goes back.
  void SetReadLease(Instant until);

  Generation routing_generation() const;
  Generation membership_generation() const;
  v1::RoutingTable routing() const;

 private:
  using MadeFrom = std::map<ShardKey, ShardOrder::From>;
  using Servers = std::map<FollowerKey, v1::ServerAddress>;

  // The job is not closed, and the table is newer than the last.
  bool TakesLocked(const v1::RoutingTable& routing) const ABSL_SHARED_LOCKS_REQUIRED(state_->mutex);
  ShardState StateLocked(const HeldShard& shard) const ABSL_SHARED_LOCKS_REQUIRED(state_->mutex);
  ShardEngine& MakeEngineLocked(const HeldShard& shard, JobEffects* effects)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_->mutex);
  // `servers`: all that the table lists.
  void SetRouteLocked(const RoutedShard& routed, const Servers& servers, const MadeFrom& made,
                      JobEffects* effects) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_->mutex);
  // Returns the next one.
  JobState::Engines::iterator RemoveLocked(JobState::Engines::iterator engine, JobEffects* effects)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_->mutex);

  JobState* const state_;
  CommitPipeline* const commits_;
  uint64_t engines_made_ ABSL_GUARDED_BY(state_->mutex) = 0;
};

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_ENGINE_JOB_JOB_ASSIGNMENT_H_
