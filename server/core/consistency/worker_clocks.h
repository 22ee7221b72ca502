// WorkerClocks: how many iterations each worker has finished on one shard ("clock" in the SSP
// sense).
//
// A member's clock is 1 + the highest iteration that it has pushed, and at least the
// start_iteration with which the membership made it active. Pushes that arrive before the
// membership that lists their incarnation are remembered for it. Thread safety: thread-compatible.
// Invariant: an incarnation's clock never decreases.
#ifndef CAPSTAN_SERVER_CORE_CONSISTENCY_WORKER_CLOCKS_H_
#define CAPSTAN_SERVER_CORE_CONSISTENCY_WORKER_CLOCKS_H_

#include <map>
#include <optional>
#include <vector>

#include "common/types/ids.h"
#include "server/core/messages/membership.h"
#include "server/core/messages/shard_record.h"

namespace capstan::server {

class WorkerClocks {
 public:
  void SetMembership(const Membership& membership);
  void RecordPush(Rank rank, Incarnation incarnation, Iteration iteration);

  bool members_known() const { return members_known_; }

  // Iterations that every active member has finished; nullopt if no member is active.
  std::optional<Iteration> FinishedByAll() const;

  // Active members that have finished fewer than `count` iterations, ascending.
  std::vector<Rank> Behind(Iteration count) const;

  void Save(ShardCoreState& state) const;  // Sets members_known, members and early.
  void Restore(const ShardCoreState& state);

 private:
  struct Clock {
    Incarnation incarnation;
    Iteration finished;  // Count of iterations.
    bool active = false;
    Iteration start_iteration;  // From the last membership that listed it.
  };

  bool members_known_ = false;
  std::map<Rank, Clock> members_;
  std::map<Rank, Clock>
      early_;  // Incarnations above the listed one (or unlisted) that have pushed.
};

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_CORE_CONSISTENCY_WORKER_CLOCKS_H_
