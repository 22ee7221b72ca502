// SspPolicy: the stale-synchronous consistency policy: a push is applied at once; a reader at
// iteration c waits for workers that are more than s iterations behind.
//
// A pull at iteration c is answered when every active member has finished iteration c - 1 - s (of
// its own count), so with s = 0 it waits exactly where BSP waits. Inactive members are not waited
// for, and the death of a worker releases the pulls that waited for it. As long as no members are
// known, only pulls at c <= s are answered: no worker can be too far behind them.
// Thread safety: thread-compatible.
#ifndef CAPSTAN_SERVER_CORE_CONSISTENCY_SSP_POLICY_H_
#define CAPSTAN_SERVER_CORE_CONSISTENCY_SSP_POLICY_H_

#include "common/planted/planted_bug.h"
#include "server/core/consistency/consistency_policy.h"
#include "server/core/consistency/worker_clocks.h"

namespace capstan::server {

class SspPolicy final : public ConsistencyPolicy {
 public:
  explicit SspPolicy(const ConsistencyRule& rule) : rule_(rule) {}

  bool DeduplicatesBySlot() const override { return false; }
  absl::Status CheckPush(const PushHead& push, const ShardVersions& versions) const override;
  PushDecision Push(const PushHead& push, const ShardVersions& versions) override;
  PullDecision Pull(Iteration iteration, const ShardVersions& versions) const override;
  WaitingOn WaitsOn(Iteration iteration, const ShardVersions& versions) const override;
  Version SafeWith(const PushHead&, const ShardVersions& versions) const override {
    return versions.current;
  }
  PushDecision Replay(const ShardRecord& record, const ShardVersions& versions) override;
  void SetMembership(const Membership& membership) override { clocks_.SetMembership(membership); }
  void Save(ShardCoreState& state) const override { clocks_.Save(state); }
  void Restore(const ShardCoreState& state) override { clocks_.Restore(state); }

 private:
  // Iterations that every active member must have finished before a pull at `iteration` is
  // answered.
  Iteration Needed(Iteration iteration) const {
    const int32_t bound = rule_.staleness_bound + (Planted(PlantedBug::kStalenessOffByOne) ? 1 : 0);
    return Iteration(iteration.value() - bound);
  }

  const ConsistencyRule rule_;
  WorkerClocks clocks_;
};

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_CORE_CONSISTENCY_SSP_POLICY_H_
